// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace ostrakon::texts {

/// Returns the value of a line of JSON; objects keep the order of their keys. Throws Error, without
/// the line's place, that says what is wrong: "column 7: ..." where it is no JSON.
nlohmann::ordered_json parse_record(std::string_view line);

}  // namespace ostrakon::texts
