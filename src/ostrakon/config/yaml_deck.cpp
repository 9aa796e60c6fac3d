// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/yaml_deck.hpp>

#include <yaml.h>

#include <Teuchos_Array.hpp>
#include <Teuchos_ParameterList.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <new>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>

namespace ostrakon::config {
namespace {

using Teuchos::ParameterEntry;
using Teuchos::ParameterList;

/// A message of libyaml, and our text for it.
struct Reason {
  const char* theirs;
  const char* ours;
};
constexpr Reason reasons[] = {
    {"could not find expected ':'", "expected `key: value`, or a section `key:`"},
    {"did not find expected key",
     "expected a key, in the same column as the others of its section; nothing follows a value "
     "that "
     "ends with a quote, ] or }"},
    {"mapping values are not allowed",
     "this ':' ends no key: the line above lacks one, or this line is indented too deep, or text "
     "with ': ' in it lacks quotes"},
    {"block sequence entries are not allowed", "text that begins with '- ' goes in quotes"},
    {"character that cannot start any token",
     "text that begins with @, ` or % goes in quotes, and lines are indented with spaces, not "
     "tabs"},
    {"unexpected end of stream", "a quote, or { or [, that begins here has no end"},
    {"expected <document start>",
     "expected no more text here; everything but ostrakon is indented below it"}};

std::string reason_of(const std::string& theirs) {
  for (const Reason& reason : reasons)
    if (theirs.find(reason.theirs) != std::string::npos) return reason.ours;
  return theirs;
}

/// Returns the line number, from 1, of a byte.
std::ptrdiff_t line_of(const std::string& text, std::size_t at) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(at, text.size()));
  return 1 + std::count(text.begin(), end, '\n');
}

/// The events of libyaml's parser, in order.
class Events {
 public:
  Events(const std::string& text, const std::string& name) : text_(text), name_(name) {
    if (yaml_parser_initialize(&parser_) == 0) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text_.data()),
                                 text_.size());
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }

  const yaml_event_t& next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) == 0) refuse_syntax();
    return event_;
  }

  const yaml_event_t& last() const { return event_; }

  /// Begins messages of errors about the last event.
  std::string place() const { return text(name_, ": line ", event_.start_mark.line + 1, ": "); }

 private:
  [[noreturn]] void refuse_syntax() const {
    if (parser_.error == YAML_MEMORY_ERROR) throw std::bad_alloc();
    if (parser_.error == YAML_READER_ERROR) refuse_byte();
    // Text that never ends is reported at the line where it begins.
    std::size_t line =
        (parser_.error == YAML_SCANNER_ERROR ? parser_.context_mark : parser_.problem_mark).line;
    while (line > 0 && line_text(line).empty()) --line;  // skips empty lines at the end of the text
    throw Error(text(name_, ": not valid YAML: line ", line + 1, ": ", shown(line_text(line)), "; ",
                     reason_of(parser_.problem)));
  }

  [[noreturn]] void refuse_byte() const {
    const std::size_t at =
        std::min({first_not_utf8(text_), parser_.problem_offset, text_.size() - 1});
    char byte[8];
    std::snprintf(byte, sizeof byte, "0x%02X",
                  static_cast<unsigned>(static_cast<unsigned char>(text_[at])));
    throw Error(text(name_, ": not valid YAML: line ", line_of(text_, at), ": byte ", byte,
                     " is not text in UTF-8"));
  }

  /// Returns line `number`, from 0, trimmed.
  std::string line_text(std::size_t number) const {
    std::size_t begin = 0;
    for (; number > 0 && begin < text_.size(); --number)
      begin = std::min(text_.find('\n', begin), text_.size() - 1) + 1;
    std::string line = text_.substr(begin, text_.find('\n', begin) - begin);
    line.erase(0, line.find_first_not_of(" \t\r"));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    return line;
  }

  const std::string& text_;
  const std::string& name_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
};

std::string string_of(const unsigned char* text, std::size_t length) {
  return {reinterpret_cast<const char*>(text), length};
}
std::string string_of(const unsigned char* text) {
  return text == nullptr ? "" : reinterpret_cast<const char*>(text);
}

Value to_value(const ParameterEntry& entry) {
  if (entry.isList()) {
    const auto& list = Teuchos::getValue<ParameterList>(entry);
    return Value::of(list.numParams() == 0 ? Value::Kind::nothing : Value::Kind::section);
  }
  if (entry.isType<bool>()) return Value::of(Teuchos::getValue<bool>(entry));
  if (entry.isType<std::string>()) return Value::of(Teuchos::getValue<std::string>(entry));
  if (!entry.isType<double>()) {
    Value list = Value::of(Value::Kind::list);
    const auto& items = Teuchos::getValue<Teuchos::Array<std::string>>(entry);
    list.items.assign(items.begin(), items.end());
    return list;
  }
  Value number = Value::of(Teuchos::getValue<double>(entry));
  number.text = entry.docString();
  return number;
}

/// Builds a list from events; null becomes an empty list.
class Reader {
 public:
  Reader(const std::string& text, const std::string& name) : events_(text, name), name_(name) {}

  ParameterList read() {
    events_.next();  // skips the start of the stream
    if (events_.next().type == YAML_STREAM_END_EVENT) refuse_empty();
    const yaml_event_t& root = events_.next();
    if (root.type == YAML_SCALAR_EVENT && root.data.scalar.length == 0) refuse_empty();
    require(root.type == YAML_MAPPING_START_EVENT, events_.place(), "expected the root key ",
            root_name, ", with all sections indented below it, found ",
            root.type == YAML_SCALAR_EVENT ? "text" : "a list");
    refuse_tag(root.data.mapping_start.tag);
    ParameterList list(root_name);
    read_root(list);
    events_.next();  // skips the end of the document
    require(events_.next().type == YAML_STREAM_END_EVENT, events_.place(),
            "a second document begins here; expected one");
    return list;
  }

 private:
  [[noreturn]] void refuse_empty() const {
    throw Error(
        text(name_, ": is empty; expected the root key ", root_name, " with sections below it"));
  }

  void refuse_tag(const unsigned char* tag) const {
    require(tag == nullptr, events_.place(),
            "'!' begins a type tag, which has no meaning here; put text that begins with '!' in "
            "quotes");
  }

  void read_root(ParameterList& list) {
    while (events_.next().type != YAML_MAPPING_END_EVENT) {
      const std::string place = events_.place();
      const std::string key = read_key(list);
      require(key == root_name, place,
              list.numParams() == 0 ? text("the root key is ", printable(key), "; expected ",
                                           root_name, ", with all sections indented below it")
                                    : text(printable(key), " is a second root key; everything but ",
                                           root_name, " must be indented below it"));
      read_value(list, key, 1);
    }
    if (list.numParams() == 0) refuse_empty();
    require(list.getEntry(root_name).isList(), name_, ": ", root_name,
            ": expected sections indented below it");
  }

  /// Returns the last event as a key. Throws Error if `list` already has that key.
  std::string read_key(const ParameterList& list) const {
    const yaml_event_t& event = events_.last();
    require(event.type == YAML_SCALAR_EVENT, events_.place(),
            "a key is text; found another thing before the ':'");
    refuse_tag(event.data.scalar.tag);
    require(event.data.scalar.anchor == nullptr, events_.place(),
            "a key has no anchor; expected it before the value");
    const std::string key = string_of(event.data.scalar.value, event.data.scalar.length);
    require(!key.empty(), events_.place(), "a key is empty; expected its name before the ':'");
    require(key != "<<", events_.place(),
            "'<<' merges keys, which is not supported; write the keys themselves");
    require(!list.isParameter(key), events_.place(), printable(key),
            " is given twice in the same section");
    return key;
  }

  /// Reads the value that follows `key`.
  void read_value(ParameterList& list, const std::string& key, int depth) {
    const yaml_event_t& event = events_.next();
    std::string anchor;
    if (event.type == YAML_ALIAS_EVENT) {
      const auto known = anchors_.find(string_of(event.data.alias.anchor));
      require(known != anchors_.end(), events_.place(),
              "no text, number or list before it is named &",
              printable(string_of(event.data.alias.anchor)),
              "; put text that begins with '*' in quotes");
      list.setEntry(key, known->second);
      return;
    }
    require(depth <= deepest_nesting, events_.place(),
            "nested too deeply; expected three levels: ", root_name, ", section, key");
    if (event.type == YAML_SCALAR_EVENT) {
      refuse_tag(event.data.scalar.tag);
      anchor = string_of(event.data.scalar.anchor);
      set_scalar(list, key, string_of(event.data.scalar.value, event.data.scalar.length),
                 event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE);
    } else if (event.type == YAML_SEQUENCE_START_EVENT) {
      refuse_tag(event.data.sequence_start.tag);
      anchor = string_of(event.data.sequence_start.anchor);
      list.set(key, read_list());
    } else {
      refuse_tag(event.data.mapping_start.tag);
      anchor = string_of(event.data.mapping_start.anchor);
      ParameterList& section = list.sublist(key);
      while (events_.next().type != YAML_MAPPING_END_EVENT)
        read_value(section, read_key(section), depth + 1);
    }
    if (anchor.empty()) return;
    // Sections are not kept for aliases: no key takes one, and nested copies could exhaust the
    // memory.
    anchors_.erase(anchor);
    if (to_value(list.getEntry(key)).kind != Value::Kind::section)
      anchors_[anchor] = list.getEntry(key);
  }

  /// Returns the elements of a list; none if one is a list or section itself, which no key takes.
  Teuchos::Array<std::string> read_list() {
    Teuchos::Array<std::string> items;
    bool is_flat = true;
    for (int depth = 1; depth > 0;) {
      const yaml_event_t& event = events_.next();
      const yaml_event_type_t type = event.type;
      if (type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT) ++depth;
      if (type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT) --depth;
      if (type == YAML_SCALAR_EVENT)
        items.push_back(string_of(event.data.scalar.value, event.data.scalar.length));
      else
        is_flat = is_flat && depth == 0;
    }
    return is_flat ? items : Teuchos::Array<std::string>();
  }

  static void set_scalar(ParameterList& list, const std::string& key, const std::string& written,
                         bool plain) {
    Value value = plain ? parse_scalar(written) : Value::of(written);
    if (plain && written.empty()) value = Value::of(Value::Kind::nothing);
    if (value.kind == Value::Kind::nothing)
      list.sublist(key);
    else if (value.kind == Value::Kind::boolean)
      list.set(key, value.boolean);
    else if (value.kind == Value::Kind::number)
      list.set(key, value.number, written);  // the text of the number is kept as its documentation
    else
      list.set(key, written);
  }

  Events events_;
  const std::string& name_;
  std::map<std::string, ParameterEntry> anchors_;
};

/// Refuses line breaks of YAML 1.1 that YAML 1.2 does not have, as libyaml follows 1.1.
void require_lines_of_both(const std::string& text, const std::string& name) {
  for (const char* end : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"}) {
    const std::size_t at = text.find(end);
    require(
        at == std::string::npos, name, ": not valid YAML: line ", line_of(text, at),
        ": the character U+0085, U+2028 or U+2029; in double quotes, \\N, \\L and \\P stand for "
        "them");
  }
}

/// Replaces single carriage returns, which are line breaks in YAML, by newlines, which are counted.
std::string with_newlines(std::string text) {
  for (std::size_t at = text.find('\r'); at != std::string::npos; at = text.find('\r', at + 1))
    if (at + 1 == text.size() || text[at + 1] != '\n') text[at] = '\n';
  return text;
}

/// Replaces tabs by spaces in decks that are indented with tabs only, which YAML forbids.
std::string without_tabs(std::string text) {
  if (text.find("\n ") != std::string::npos) return text;
  for (std::size_t at = text.find("\n\t"); at != std::string::npos; at = text.find("\n\t", at))
    for (++at; at < text.size() && text[at] == '\t'; ++at) text[at] = ' ';
  return text;
}

DeckSection to_section(const std::string& name, const ParameterEntry& entry) {
  DeckSection section{name, to_value(entry), {}};
  if (!entry.isList()) return section;
  section.value = Value::of(Value::Kind::section);
  const auto& list = Teuchos::getValue<ParameterList>(entry);
  for (auto key = list.begin(); key != list.end(); ++key)
    section.entries.push_back({list.name(key), to_value(list.entry(key))});
  return section;
}

}  // namespace

std::vector<DeckSection> read_yaml(const std::string& original, const std::string& name) {
  const std::string text = with_newlines(original);
  require_lines_of_both(text, name);
  const std::string with_spaces = without_tabs(text);
  const ParameterList list = Reader(with_spaces, name).read();
  const ParameterList& root = list.sublist(root_name);
  std::vector<DeckSection> sections;
  for (auto section = root.begin(); section != root.end(); ++section)
    sections.push_back(to_section(root.name(section), root.entry(section)));
  return sections;
}

}  // namespace ostrakon::config
