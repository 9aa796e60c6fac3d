// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/stack_file.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/config/nearest.hpp>
#include <vector>

namespace ostrakon::config {

using simulate::Stack;
using simulate::StackKey;

namespace {

std::string advice(const std::string& word) {
  std::vector<std::string> known = {"name"};
  for (const StackKey& key : simulate::stack_keys()) known.emplace_back(key.key);
  const std::string near = nearest(word, known);
  return near.empty() ? "expected " + join(known, ", ", " or ") : "did you mean " + near + "?";
}

void read_entry(Stack& stack, const DeckEntry& entry, const std::string& name) {
  const std::string place =
      text(name, ": stack.", printable(entry.name), " = ", entry.value.shown());
  if (entry.name == "name") {
    require(entry.value.kind == Value::Kind::text && !entry.value.text.empty(), place,
            ": expected text");
    stack.name = entry.value.text;
    return;
  }
  const std::vector<StackKey>& keys = simulate::stack_keys();
  const auto key = std::find_if(keys.begin(), keys.end(),
                                [&](const StackKey& one) { return one.key == entry.name; });
  require(key != keys.end(), name, ": unknown key stack.", printable(entry.name), "; ",
          advice(entry.name));
  if (key->flag != nullptr) {
    const auto number = entry.value.integer(0, 1);
    require(number.has_value(), place, ": expected 0, or 1: ", key->what);
    stack.*key->flag = *number == 1;
    return;
  }
  require(entry.value.kind == Value::Kind::number && entry.value.number >= key->least &&
              entry.value.number <= key->most,
          place, ": expected a number from ", format_number(key->least), " to ",
          format_number(key->most), ": ", key->what);
  stack.*key->number = entry.value.number * key->unit;
}

}  // namespace

Stack read_stack(const DeckSection& section, const std::string& name) {
  require(section.value.kind == Value::Kind::section, name, ": stack = ", section.value.shown(),
          ": expected keys indented below it");
  Stack stack;
  for (const DeckEntry& entry : section.entries) read_entry(stack, entry, name);
  for (const auto& [key, bits] :
       {std::pair{"sum_bits", stack.sum_bits}, std::pair{"exchange_bits", stack.exchange_bits}})
    require(bits == 0.0 || bits == 8.0 || bits == 16.0 || bits == 32.0 || bits == 64.0, name,
            ": stack.", key, " = ", format_number(bits), ": expected 0, 8, 16, 32 or 64");
  const bool has_name = std::any_of(section.entries.begin(), section.entries.end(),
                                    [](const DeckEntry& entry) { return entry.name == "name"; });
  require(has_name || is_ostrakon(stack), name,
          ": stack.name is missing; expected text, as the other keys are not Ostrakon's");
  return stack;
}

Stack read_stack(const std::string& file_text, const std::string& name) {
  const std::vector<DeckSection> sections = read_deck(file_text, name, false);
  for (const DeckSection& section : sections)
    require(section.name == "stack", name, ": unknown section ", printable(section.name),
            "; a stack file has the section stack alone");
  require(!sections.empty(), name, ": section stack is missing");
  return read_stack(sections.front(), name);
}

}  // namespace ostrakon::config
