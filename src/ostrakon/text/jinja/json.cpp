// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <ostrakon/text/jinja/text.hpp>
#include <ostrakon/text/jinja/value.hpp>

namespace ostrakon::texts::jinja {
namespace {

/// json.dumps() of Python: https://docs.python.org/3/library/json.html
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value) {
    if (out_.size() > longest_text) fail("tojson makes a text that is too long");
    switch (value.kind()) {
      case Kind::none:
        out_ += "null";
        return;
      case Kind::boolean:
        out_ += value.integer() != 0 ? "true" : "false";
        return;
      case Kind::integer:
        out_ += std::to_string(value.integer());
        return;
      case Kind::real:
        write_real(value.real());
        return;
      case Kind::string:
        write_string(value.string());
        return;
      case Kind::list:
      case Kind::tuple:
        write_all(value.list().values, "[", "]", [this](const Value& item) { write(item); });
        return;
      case Kind::dict:
        write_dict(value.dict());
        return;
      case Kind::undefined:
        fail("tojson: ", value.why());
      default:
        fail("tojson: a ", type_name(value), " has no JSON");
    }
  }

 private:
  template <class Items, class Write>
  void write_all(const Items& items, const char* begin, const char* end, const Write& write_item) {
    out_ += begin;
    if (items.empty()) {
      out_ += end;
      return;
    }
    ++depth_;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.between_items;
      first = false;
      new_line();
      write_item(item);
    }
    --depth_;
    new_line();
    out_ += end;
  }

  void new_line() {
    if (!style_.indents) return;
    if (style_.indent.size() > longest_text / (depth_ + 1)) fail("tojson: the indent is too long");
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) out_ += style_.indent;
  }

  void write_dict(const Dict& dict) {
    auto entries = dict.entries;
    if (style_.sorts_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return less(a.first, b.first); });
    write_all(entries, "{", "}", [this](const auto& entry) {
      write_key(entry.first);
      out_ += style_.after_key;
      write(entry.second);
    });
  }

  void write_key(const Value& key) {
    if (key.is(Kind::string)) {
      write(key);
    } else if (key.is(Kind::none) || key.is_number()) {
      out_ += '"';
      write(key);
      out_ += '"';
    } else {
      fail("tojson: a ", type_name(key), " can't be a key");
    }
  }

  void write_real(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value < 0 ? "-Infinity" : "Infinity";
    } else {
      out_ += real_text(value);
    }
  }

  void write_unit(unsigned unit) {
    constexpr char hex[] = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_ += hex[unit >> shift & 15u];
  }

  void write_string(const std::string& string) {
    out_ += '"';
    for (std::size_t at = 0; at < string.size();) {
      const char32_t c = next_character(string, at);
      constexpr std::string_view escaped = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
      const std::size_t known = c < 0x80 ? escaped.find(static_cast<char>(c)) : std::string::npos;
      if (known != std::string::npos) {
        out_ += '\\';
        out_ += letters[known];
      } else if (c < 0x20 || (style_.ascii_only && c > 0x7F && c < 0x10000)) {
        write_unit(c);
      } else if (style_.ascii_only && c >= 0x10000) {
        write_unit(0xD800 + ((c - 0x10000) >> 10));
        write_unit(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        append_character(out_, c);
      }
    }
    out_ += '"';
  }

  const JsonStyle& style_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace ostrakon::texts::jinja
