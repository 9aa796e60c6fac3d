// SPDX-License-Identifier: Apache-2.0

#include <Teuchos_StringInputSource.hpp>
#include <Teuchos_XMLObject.hpp>
#include <cctype>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/config/yaml_deck.hpp>
#include <set>

namespace ostrakon::config {
namespace {

// Real decks have some 4 KiB. The limit protects from a data file given by mistake, for which
// Teuchos may take minutes, as its time is quadratic for some texts.
constexpr std::size_t largest_deck = std::size_t{64} * 1024;

void require_shallow_xml(const std::string& xml, const std::string& name) {
  int depth = 0;
  for (std::size_t i = 0; i + 1 < xml.size(); ++i) {
    if (xml[i] == '<' && xml[i + 1] == '/') --depth;
    if (xml[i] == '<' && std::isalpha(static_cast<unsigned char>(xml[i + 1]))) ++depth;
    if (xml[i] == '/' && xml[i + 1] == '>') --depth;
    require(depth <= deepest_nesting, name,
            ": nested too deeply; expected three levels: ", root_name, ", section, key");
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

/// Returns the value of a <Parameter>. Teuchos is not used, as it reads "5.5" as the integer 5.
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
  require(!entry.empty(), place, ": an attribute name is empty");
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
  require(deck.size() <= largest_deck, name, ": too long; expected at most ", largest_deck,
          " bytes");
  return xml ? read_xml(deck, name) : read_yaml(deck, name);
}

}  // namespace ostrakon::config
