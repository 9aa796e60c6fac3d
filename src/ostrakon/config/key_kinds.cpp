// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/key_kinds.hpp>

#include <ostrakon/base/error.hpp>

namespace ostrakon::config {

void require_no_control_characters(const std::string& text) {
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    require(byte >= 0x20 && byte != 0x7F, shown(text), " has the control character ",
            printable(text.substr(at, 1)), " at byte ", at + 1, "; expected text without any");
  }
}

Key only(const std::string& name, const std::string& accepted, const std::string& meaning) {
  Key key(name, meaning);
  key.expected = accepted + ", the only value that this version accepts";
  key.limits = accepted + " only";
  key.set = [=](Settings&, const Value& value) {
    return value.kind == Value::Kind::text && value.text == accepted;
  };
  key.get = [=](const Settings&) { return Value::of(accepted); };
  return key;
}

std::string joined_files(const std::vector<std::string>& files) {
  std::string joined;
  for (const std::string& file : files) {
    require(file.find(';') == std::string::npos, shown(file),
            " has a ';', which separates files; expected one file in each element of a list");
    joined += (joined.empty() ? "" : "; ") + file;
  }
  return joined;
}

std::string on_one_line(std::string rules) {
  for (char& c : rules)
    if (c == '\n' || c == '\r' || c == '\t') c = ' ';
  return rules;
}

}  // namespace ostrakon::config
