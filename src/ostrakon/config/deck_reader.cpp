// SPDX-License-Identifier: Apache-2.0

// The only file that sees Teuchos' parameter lists.

#include <Teuchos_ParameterList.hpp>
#include <Teuchos_StringInputSource.hpp>
#include <Teuchos_XMLObject.hpp>
#include <Teuchos_YamlParameterListCoreHelpers.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/config/yaml_text.hpp>
#include <set>

namespace ostrakon::config {
namespace {

constexpr const char* root_name = "ostrakon";
// Real decks have some 4 KiB. The limit keeps Teuchos, which takes quadratic time for some texts,
// from working for minutes on a data file given by mistake.
constexpr std::size_t largest_deck = std::size_t{64} * 1024;
constexpr int deepest_nesting = 32;

// ---------------------------------------------------------------------------------------- YAML

/// The number that follows `word` in `message`, or 0.
long number_after(const std::string& message, const std::string& word) {
  const std::size_t at = message.find(word);
  return at == std::string::npos ? 0 : std::strtol(message.c_str() + at + word.size(), nullptr, 10);
}

/// The line on which Teuchos gave up. It counts a line's end with the line after it, and runs of
/// empty lines as one end.
long failed_line(const std::string& message) {
  long line = number_after(message, "line ");
  const std::string lexer = "Lexer text: \"";
  const std::size_t at = message.find(lexer);
  if (message.find("Got: NEWLINE") != std::string::npos && at != std::string::npos) {
    const std::size_t end = message.rfind('"');
    line -= std::count(message.begin() + static_cast<std::ptrdiff_t>(at),
                       message.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  }
  return line;
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

/// The key before the first ':' of a line, without blanks and quotes; empty if there is no ':'.
std::string key_of(const std::string& line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos) return "";
  std::string key = line.substr(0, colon);
  const auto is_wrapping = [](char c) { return c == ' ' || c == '\t' || c == '"' || c == '\''; };
  key.erase(std::remove_if(key.begin(), key.end(), is_wrapping), key.end());
  return restore_text(key);
}

/// Teuchos reports errors in a deck's outermost level badly or not at all.
void require_one_root(const std::string& prepared, const std::string& name) {
  const std::vector<std::string> lines = split_lines(prepared);
  bool found = false;
  bool empty = true;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.empty()) continue;
    if (line[0] == '%' || line.rfind("---", 0) == 0 || line.rfind("...", 0) == 0) continue;
    require(!empty || (line[0] != ' ' && line[0] != '\t'), name, ": line ", i + 1,
            ": the root key must begin in the first column, found ", quote_line(prepared, 1 + i));
    empty = false;
    const std::string key = key_of(line);
    if (line[0] == ' ' || line[0] == '\t' || line[0] == '}' || key.empty()) continue;
    require(!found, name, ": line ", i + 1, ": ", key, " is a second root key; everything but ",
            root_name, " must be indented below it");
    require(key == root_name, name, ": line ", i + 1, ": the root key is ", key, "; expected ",
            root_name, ", with all sections indented below it");
    found = true;
  }
  require(!empty, name, ": the deck is empty; expected the root key ", root_name,
          " with sections below it");
}

/// Teuchos takes some wrong indentation for a section that it isn't, and reports other far below.
void require_tidy_indentation(const std::string& prepared, const std::string& name) {
  const std::vector<std::string> lines = split_lines(prepared);
  std::vector<std::string> open = {""};  // indentations of the sections around this line
  std::string before = ":";              // the last line that is not empty
  bool is_block = false;                 // whether the innermost of them is text after | or >
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const std::string indentation = lines[i].substr(0, lines[i].find_first_not_of(" \t"));
    const std::string place = text(name, ": not valid YAML: line ", i + 1, ": ");
    const std::size_t shared = std::min(indentation.size(), open.back().size());
    require(indentation.compare(0, shared, open.back(), 0, shared) == 0, place,
            "indented with other characters than the lines before; indent with spaces");
    if (indentation.size() > open.back().size()) {
      if (is_block) continue;  // its lines may be indented as they like
      require(std::string(":|>-").find(before.back()) != std::string::npos, place,
              "indented deeper than the line before, which is not a section");
      open.push_back(indentation);
      is_block = before.back() == '|' || before.back() == '>';
    }
    for (; open.back().size() > indentation.size(); is_block = false) open.pop_back();
    require(open.back() == indentation, place, "indented by ", indentation.size(),
            ", which matches no section above; all keys of a section begin in the same column");
    before = lines[i];
  }
}

void require_shallow(const std::string& prepared, const std::string& name) {
  int depth = 0;
  for (const char c : prepared) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    require(depth <= deepest_nesting, name,
            ": nested too deeply; decks have three levels: ", root_name, ", section, key");
  }
}

[[noreturn]] void throw_duplicate(const std::string& prepared, const std::string& name,
                                  const std::string& key, long line) {
  const std::vector<std::string> lines = split_lines(prepared);
  std::size_t at = std::min(static_cast<std::size_t>(std::max(line, 1L)), lines.size());
  while (at > 0 && key_of(lines[at - 1]) != key) --at;
  throw Error(at > 0 ? text(name, ": line ", at, ": ", key, " is given twice in the same section")
                     : text(name, ": ", key, " is given twice in the same section"));
}

/// What Teuchos' `message` means for the user.
[[noreturn]] void throw_yaml_error(const std::string& message, const std::string& original,
                                   const std::string& prepared, const std::string& name) {
  const std::vector<std::string> lines = split_lines(prepared);
  long line = std::min(failed_line(message), static_cast<long>(lines.size()));
  while (line > 1 && lines[static_cast<std::size_t>(line - 1)].empty()) --line;
  const std::string twice = "Parameter \"";
  const std::size_t at = message.find(twice);
  if (at != std::string::npos && message.find("already exists") != std::string::npos) {
    const std::size_t begin = at + twice.size();
    const std::string key = message.substr(begin, message.find('"', begin) - begin);
    throw_duplicate(prepared, name, restore_text(key), line);
  }
  if (message.find("rhs.at(offset)") != std::string::npos) {
    throw Error(text(name, ": ", root_name, ": expected sections indented below it"));
  }
  require(line > 0, name, ": not valid YAML");
  throw Error(text(name, ": not valid YAML: line ", line, ": ", quote_line(original, line),
                   "; a line is `key: value`, text with any of : % , | > [ ] { } goes in quotes"));
}

template <class T>
bool read_number(const Teuchos::ParameterEntry& entry, Value& value) {
  if (!entry.isType<T>()) return false;
  value = Value::of(static_cast<double>(Teuchos::getValue<T>(entry)));
  return true;
}

Value to_value(const Teuchos::ParameterEntry& entry) {
  if (entry.isList()) {
    const auto& list = Teuchos::getValue<Teuchos::ParameterList>(entry);
    return Value::of(list.numParams() == 0 ? Value::Kind::nothing : Value::Kind::section);
  }
  if (entry.isType<bool>()) return Value::of(Teuchos::getValue<bool>(entry));
  if (entry.isType<std::string>()) {
    const std::string& prepared = Teuchos::getValue<std::string>(entry);
    const std::string original = restore_text(prepared);
    return is_long_integer(prepared) ? parse_scalar(original) : Value::of(original);
  }
  Value value;
  if (read_number<int>(entry, value) || read_number<long long>(entry, value) ||
      read_number<double>(entry, value)) {
    return value;
  }
  return Value::of(Value::Kind::list);
}

DeckSection to_section(const std::string& name, const Teuchos::ParameterEntry& entry) {
  DeckSection section{restore_text(name), to_value(entry), {}};
  if (!entry.isList()) return section;
  section.value = Value::of(Value::Kind::section);
  const auto& list = Teuchos::getValue<Teuchos::ParameterList>(entry);
  for (auto key = list.begin(); key != list.end(); ++key) {
    section.entries.push_back({restore_text(list.name(key)), to_value(list.entry(key))});
  }
  return section;
}

std::vector<DeckSection> read_yaml(const std::string& original, const std::string& name) {
  const std::string prepared = prepare_yaml(original, name);
  require_shallow(prepared, name);
  require_one_root(prepared, name);
  require_tidy_indentation(prepared, name);
  Teuchos::RCP<Teuchos::ParameterList> root;
  try {
    root = Teuchos::getParametersFromYamlString(prepared);
  } catch (const std::exception& error) {
    throw_yaml_error(error.what(), original, prepared, name);
  }
  require(restore_text(root->name()) == root_name, name, ": the root key is ",
          restore_text(root->name()), "; expected ", root_name);
  std::vector<DeckSection> sections;
  for (auto section = root->begin(); section != root->end(); ++section) {
    sections.push_back(to_section(root->name(section), root->entry(section)));
  }
  return sections;
}

// ----------------------------------------------------------------------------------------- XML

void require_shallow_xml(const std::string& xml, const std::string& name) {
  int depth = 0;
  for (std::size_t i = 0; i + 1 < xml.size(); ++i) {
    if (xml[i] == '<' && xml[i + 1] == '/') --depth;
    if (xml[i] == '<' && std::isalpha(static_cast<unsigned char>(xml[i + 1]))) ++depth;
    if (xml[i] == '/' && xml[i + 1] == '>') --depth;
    require(depth <= deepest_nesting, name,
            ": nested too deeply; decks have three levels: ", root_name, ", section, key");
  }
}

Teuchos::XMLObject parse_xml(const std::string& xml, const std::string& name) {
  try {
    return Teuchos::StringInputSource(xml).getObject();
  } catch (const std::exception& error) {
    const std::string message = error.what();
    const std::string start = "XML parse error at ";
    const std::size_t at = message.find(start);
    if (at == std::string::npos) throw Error(text(name, ": not valid XML"));
    const std::size_t begin = at + start.size();
    throw Error(
        text(name, ": not valid XML: ", message.substr(begin, message.find('\n', begin) - begin)));
  }
}

std::string attribute(const Teuchos::XMLObject& element, const char* key,
                      const std::string& place) {
  require(element.hasAttribute(key), place, ": <", element.getTag(), "> has no attribute ", key);
  return element.getAttribute(key);
}

/// A <Parameter>'s value. Read here and not by Teuchos, which takes "5.5" for the integer 5.
Value xml_value(const Teuchos::XMLObject& element, const std::string& place) {
  const std::string type = attribute(element, "type", place);
  const std::string written = attribute(element, "value", place);
  if (type == "string") return Value::of(written);
  if (type.find("Array") != std::string::npos) return Value::of(Value::Kind::list);
  const Value value = parse_scalar(written);
  const bool fits =
      type == "bool" ? value.kind == Value::Kind::boolean : value.kind == Value::Kind::number;
  require(fits, place, ": \"", written, "\" is not a value of the type \"", type, "\"");
  return value;
}

void require_new(std::set<std::string>& names, const std::string& entry, const std::string& place) {
  require(names.insert(entry).second, place, ": ", entry, " is given twice in the same section");
}

DeckSection xml_section(const Teuchos::XMLObject& element, const std::string& section_name,
                        const std::string& place) {
  DeckSection section{section_name, Value::of(Value::Kind::section), {}};
  std::set<std::string> names;
  for (int i = 0; i < element.numChildren(); ++i) {
    const Teuchos::XMLObject& child = element.getChild(i);
    const std::string& tag = child.getTag();
    const std::string key = attribute(child, "name", place + ": " + section_name);
    require_new(names, key, place);
    require(tag == "Parameter" || tag == "ParameterList", place, ": <", tag,
            ">: expected <Parameter> or <ParameterList>");
    section.entries.push_back({key, tag == "Parameter"
                                        ? xml_value(child, place + ": " + section_name + "." + key)
                                        : Value::of(Value::Kind::section)});
  }
  return section;
}

std::vector<DeckSection> read_xml(const std::string& xml, const std::string& name) {
  require_shallow_xml(xml, name);
  const Teuchos::XMLObject root = parse_xml(xml, name);
  require(root.getTag() == "ParameterList", name, ": the root element is <", root.getTag(),
          ">; expected <ParameterList name=\"", root_name, "\">");
  const std::string found = attribute(root, "name", name);
  require(found == root_name, name, ": the root list is named ", found, "; expected ", root_name);
  std::vector<DeckSection> sections;
  std::set<std::string> names;
  for (int i = 0; i < root.numChildren(); ++i) {
    const Teuchos::XMLObject& child = root.getChild(i);
    const std::string& tag = child.getTag();
    require(tag == "Parameter" || tag == "ParameterList", name, ": <", tag,
            ">: expected <ParameterList>");
    const std::string section = attribute(child, "name", name);
    require_new(names, section, name);
    if (tag == "Parameter") {
      sections.push_back({section, xml_value(child, name + ": " + section), {}});
    } else {
      sections.push_back(xml_section(child, section, name));
    }
  }
  return sections;
}

}  // namespace

std::vector<DeckSection> read_deck(const std::string& deck, const std::string& name, bool xml) {
  require(deck.size() <= largest_deck, name, ": too long for a deck, which has at most ",
          largest_deck, " bytes");
  return xml ? read_xml(deck, name) : read_yaml(deck, name);
}

}  // namespace ostrakon::config
