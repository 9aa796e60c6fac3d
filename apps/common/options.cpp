// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <iterator>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/config/policy_text.hpp>
#include <ostrakon/config/value.hpp>
#include <sstream>

#include "output_file.hpp"

namespace ostrakon::apps {
namespace {

bool begins_with(const std::string& word, const char* beginning) {
  return word.rfind(beginning, 0) == 0;
}

/// "-x" is an option, too, unless it is a file.
bool is_option(const std::string& word) {
  return begins_with(word, "--") || (word.size() > 1 && word[0] == '-' && !is_there(word));
}

/// "ostrakon-data build".
std::string called(const Program& program, const Command& command) {
  return program.name + (command.name.empty() ? "" : " " + command.name);
}

const Option* find(const std::vector<Option>& options, const std::string& name) {
  for (const Option& option : options)
    if (!name.empty() && option.name == name) return &option;
  return nullptr;
}

std::vector<Option> options_of(const Program& program, const Command& command) {
  std::vector<Option> all = command.options;
  all.insert(all.end(), program.options.begin(), program.options.end());
  return all;
}

/// The position of the first word that is neither an option nor the value of one; the number of
/// words if there is none. Where a program has named commands it names one.
std::size_t first_operand(const Program& program, const Words& words) {
  const auto takes_value = [&](const std::string& name) {
    const auto does = [&](const std::vector<Option>& options) {
      const Option* const option = find(options, name);
      return option != nullptr && !option->placeholder.empty();
    };
    return does(program.options) ||
           std::any_of(program.commands.begin(), program.commands.end(),
                       [&](const Command& one) { return does(one.options); });
  };
  for (std::size_t w = 0; w < words.size() && words[w] != "--"; ++w) {
    if (!is_option(words[w])) return w;
    if (takes_value(words[w])) ++w;
  }
  return words.size();
}

/// The position of the word that names a command; the number of words if there is none.
std::size_t command_place(const Program& program, const Words& words) {
  const std::size_t place = first_operand(program, words);
  for (const Command& command : program.commands)
    if (place < words.size() && !command.name.empty() && command.name == words[place]) return place;
  return words.size();
}

/// The command of `words`, the first of which is not an option if there is a command.
const Command& command_in(const Program& program, const Words& words) {
  const std::size_t place = first_operand(program, words);
  if (command_place(program, words) < words.size()) return command_called(program, words[place]);
  Words names;
  for (const Command& command : program.commands)
    if (!command.name.empty()) names.push_back(command.name);
  const std::string expected = "; expected " + expected_one_of(names);
  if (!names.empty() && place < words.size())
    throw Error("unknown command '" + words[place] + "'" + expected);
  require(program.commands[0].name.empty(), "no command", expected, " (see --help)");
  return program.commands[0];
}

[[noreturn]] void refuse_unknown(const Program& program, const Command& command,
                                 const std::string& name) {
  Words known, others;
  for (const Option& option : options_of(program, command))
    if (!option.help.empty()) known.push_back(option.name);
  for (const Command& other : program.commands)
    if (!other.name.empty() && find(other.options, name) != nullptr) others.push_back(other.name);
  const std::string near = config::nearest(name, known);
  throw Error("unknown option " + name +
              (!near.empty()     ? "; did you mean " + near + "?"
               : !others.empty() ? "; it is for " + config::join(others, ", ", " and ") + " only"
                                 : "; see " + called(program, command) + " --help"));
}

/// The value of the option at words[place], which moves on to it where it is a word of its own.
std::string value_at(const Words& words, std::size_t& place, const Option& option) {
  const std::string& word = words[place];
  const std::size_t equals = word.find('=');
  const bool is_flag = option.placeholder.empty(), is_joined = equals != std::string::npos;
  require(!is_flag || !is_joined, option.name, " takes no value, found ", word);
  if (is_flag) return "";
  if (is_joined) return word.substr(equals + 1);
  require(++place < words.size(), option.name, " needs ", option.placeholder, " after it");
  require(option.value.is_any_text || !begins_with(words[place], "--"), option.name, " needs ",
          option.placeholder, " after it, found ", words[place], "; where that is meant, write ",
          option.name, "=", words[place]);
  return words[place];
}

void take(const Option& option, const std::string& value, Given& given) {
  for (const auto& [name, before] : given.options)
    require(name != option.name || before == value || option.value.may_repeat, name,
            " is given twice, as ", shown(before), " and as ", shown(value),
            "; expected one of them");
  given.options.emplace_back(option.name, value);
  if (option.value.is_output) require_output(option.name, value);
  const std::string expected = option.value.take(value);
  require(expected.empty(), option.name, " ", value.empty() ? "''" : value, ": expected ",
          expected);
}

/// Operands "A B", "[A]" or "A...": as many words, perhaps none, or any number from 1 on.
void require_operands(const Program& program, const Command& command, const Given& given) {
  std::istringstream stream(command.operands);
  const Words expected{std::istream_iterator<std::string>(stream), {}};
  const std::size_t found = given.operands.size();
  const std::string us = called(program, command);
  if (found < expected.size() && expected[found][0] != '[')
    throw Error("no " + expected[found].substr(0, expected[found].find('.')) + " given; see " + us +
                " --help");
  if (found > expected.size() && command.operands.find("...") == std::string::npos)
    throw Error(us + " takes " + (expected.empty() ? "no further argument" : command.operands) +
                ", found also " + shown(given.operands[expected.size()]));
}

// --- help ----------------------------------------------------------------------------------------

constexpr std::size_t line_width = 100;

/// `prose` with lines that are not too long, all but the first of them indented. The words that a
/// line has no room for begin the next line of its paragraph.
std::string wrapped(const std::string& prose, std::size_t indent) {
  std::istringstream lines(prose);
  std::string all, rest;
  const auto add = [&](const std::string& line) {
    if (!all.empty()) all += "\n" + std::string(line.empty() ? 0 : indent, ' ');
    all += line;
  };
  for (std::string line; std::getline(lines, line);) {
    const bool goes_on = !line.empty() && line[0] != ' ';
    if (!rest.empty() && goes_on) line = rest + " " + line;
    if (!rest.empty() && !goes_on) add(rest);
    rest.clear();
    while (indent + line.size() > line_width) {
      const std::size_t end = line.rfind(' ', line_width - indent);
      if (end == std::string::npos || end == 0) break;
      add(line.substr(0, end));
      line.erase(0, end + 1);
      rest = line;
    }
    if (rest.empty()) add(line);
  }
  if (!rest.empty()) add(rest);
  return all;
}

std::string option_line(const std::string& option, const std::string& about, std::size_t indent) {
  const std::size_t column = indent + 25;
  std::string line = std::string(indent, ' ') + option;
  if (about.empty()) return line + "\n";
  line += line.size() + 2 > column ? "\n" + std::string(column, ' ')
                                   : std::string(column - line.size(), ' ');
  return line + wrapped(about, column) + "\n";
}

std::string options_text(const std::vector<Option>& options, std::size_t indent) {
  std::string all;
  for (const Option& option : options) {
    if (option.help.empty()) continue;
    const std::string& needs = option.value.needs;
    const bool is_said = needs.empty() || option.help.find(needs) != std::string::npos;
    if (option.name.empty())
      all += "\n" + wrapped(option.help, 0) + "\n";
    else
      all += option_line(option.name + (option.placeholder.empty() ? "" : " " + option.placeholder),
                         is_said ? option.help : "with " + needs + ": " + option.help, indent);
  }
  return all;
}

std::string usage_line(const Program& program, const Command& command) {
  std::string line =
      (program.runs == Runs::on_ranks ? "[mpiexec -n RANKS] " : "") + called(program, command);
  const std::vector<Option> options = options_of(program, command);
  bool has_more = false;
  for (const Option& option : options) {
    if (option.value.is_required) line += " " + option.name + " " + option.placeholder;
    has_more = has_more || !(option.value.is_required || option.help.empty());
  }
  return line + (command.operands.empty() ? "" : " " + command.operands) +
         (has_more ? " [options]" : "") + "\n";
}

}  // namespace

bool Given::has(const std::string& option) const {
  return std::any_of(options.begin(), options.end(),
                     [&](const auto& one) { return one.first == option; });
}

const Command& command_called(const Program& program, const std::string& name) {
  return *std::find_if(program.commands.begin(), program.commands.end(),
                       [&](const Command& one) { return one.name == name; });
}

Given parse(const Program& program, const Words& words) {
  const Command& command = command_in(program, words);
  const std::vector<Option> options = options_of(program, command);
  const std::size_t place_of_command = command_place(program, words);
  Given given;
  given.command = command.name;
  given.line = words;
  given.line.insert(given.line.begin(), program.name);
  bool are_operands = false;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i == place_of_command || (!are_operands && begins_with(words[i], "--kokkos-"))) continue;
    if (are_operands || !is_option(words[i])) {
      given.operands.push_back(words[i]);
    } else if (words[i] == "--") {
      are_operands = true;
    } else {
      const std::string name = words[i].substr(0, words[i].find('='));
      const Option* const option = find(options, name);
      if (option == nullptr) refuse_unknown(program, command, name);
      take(*option, value_at(words, i, *option), given);
    }
  }
  for (const Option& option : options) {
    require(!option.value.is_required || given.has(option.name),
            command.name.empty() ? program.name : command.name, " needs ", option.name, " ",
            option.placeholder);
    require(option.value.needs.empty() || !given.has(option.name) || given.has(option.value.needs),
            option.name, " goes with ", option.value.needs, " only");
  }
  for (const auto& [one, other] : command.exclusive)
    require(!given.has(one) || !given.has(other), one, " and ", other,
            " are both given; expected one of them");
  require_operands(program, command, given);
  return given;
}

std::string help(const Program& program, const Words& words) {
  const std::size_t place = command_place(program, words);
  std::vector<Command> shown = program.commands;
  if (place < words.size()) shown = {command_called(program, words[place])};
  std::string all, blocks;
  std::size_t width = 0;
  for (const Command& command : shown) width = std::max(width, command.name.size() + 2);
  for (const Command& command : shown) {
    all += (all.empty() ? "usage: " : "       ") + usage_line(program, command);
    if (command.about.empty()) continue;
    const bool is_named = !command.name.empty();
    blocks += "\n" + command.name + std::string(is_named ? width - command.name.size() : 0, ' ') +
              wrapped(command.about, is_named ? width : 0) + (is_named ? "\n" : "\n\n") +
              options_text(command.options, is_named ? 4 : 2);
  }
  if (!program.about.empty()) all += "\n" + wrapped(program.about, 0) + "\n";
  all += blocks + (shown.back().name.empty() ? "" : "\n") + options_text(program.options, 2) +
         option_line("--help, --version", "", 2);
  if (program.runs != Runs::without_kokkos)
    all += option_line("--kokkos-...", "flags of Kokkos", 2);
  return all + (program.after.empty() ? "" : "\n" + wrapped(program.after, 0) + "\n");
}

std::string answer(const Program& program, const Words& words) {
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word == "--help" || word == "-h") return help(program, words);
    if (word == "--version") return text(program.name, " ", version(), "\n");
  }
  return "";
}

// --- values --------------------------------------------------------------------------------------

std::optional<double> read_number(const std::string& text, double least, double most) {
  const config::Value read = config::parse_scalar(text);
  const bool is_good =
      read.kind == config::Value::Kind::number && read.number >= least && read.number <= most;
  return is_good ? std::optional(read.number) : std::nullopt;
}

std::string expected_one_of(const Words& names) { return config::join(names, ", ", " or "); }

Value flag(bool& to) {
  return {[&to](const std::string&) {
    to = true;
    return "";
  }};
}

Value bytes(std::int64_t& to) {
  return {[&to](const std::string& value) -> std::string {
    const config::Value read = config::parse_scalar(value);
    const auto plain = read.integer(1, std::int64_t{1} << 53);
    const auto limit = config::read_gather_limit(read);
    if (!plain && !(limit && limit->bytes > 0)) return "bytes, such as 80GiB or \"1.5 TB\"";
    to = plain ? *plain : limit->bytes;
    return "";
  }};
}

Value required(Value value) {
  value.is_required = true;
  return value;
}

Value with(const std::string& needs, Value value) {
  value.needs = needs;
  return value;
}

Value words(Words& to, const char* what) {
  Value value{[&to, what](const std::string& given) {
    to.push_back(given);
    return given.empty() ? what : "";
  }};
  value.may_repeat = true;
  return value;
}

Option set_option(std::vector<config::Override>& to) {
  Value value;
  value.take = [&to](const std::string& setting) {
    to.push_back(config::parse_override(setting));
    return std::string();
  };
  value.may_repeat = true;
  return {"--set", "SECTION.KEY=VALUE", value,
          "change a setting of the deck; may be given many times; of a key that is given twice "
          "the last value counts"};
}

Option heading(const std::string& text) { return {"", "", {}, text}; }

}  // namespace ostrakon::apps
