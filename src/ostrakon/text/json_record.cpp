// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/json_record.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <string>

namespace ostrakon::texts {
namespace {

using OneRecord = nlohmann::ordered_json;

/// Turns the parser's "[json...] parse error at line 1, column 7: ...; last read: ..." into
/// "column 7: ...".
std::string reason_of(const OneRecord::parse_error& error) {
  std::string reason = error.what();
  reason.erase(0, std::min(reason.find("column ", 0), reason.size()));
  const std::size_t context = reason.find("syntax error while parsing ");
  const std::size_t detail = reason.find(" - ", std::min(context, reason.size()));
  if (detail != std::string::npos) reason.erase(context, detail + 3 - context);
  const std::size_t last_read = reason.find("; last read: ");
  if (last_read == std::string::npos) return reason;
  const std::size_t expected = reason.rfind("; expected ");
  return reason.substr(0, last_read) +
         (expected > last_read && expected != std::string::npos ? reason.substr(expected) : "");
}

}  // namespace

OneRecord parse_record(std::string_view line) {
  try {
    return OneRecord::parse(line.begin(), line.end());
  } catch (const OneRecord::parse_error& error) {
    throw Error(reason_of(error));
  } catch (const OneRecord::exception& error) {
    const std::string reason = error.what();  // "[json...] number overflow ..."
    throw Error(reason.substr(std::min(reason.find("] ") + 2, reason.size())));
  }
}

}  // namespace ostrakon::texts
