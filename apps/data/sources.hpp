// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/text/sources/record_reader.hpp>
#include <string>
#include <vector>

#include "../common/options.hpp"

namespace ostrakon::apps::data_program {

/// Finds what files and folders a command names, says what is passed over, and warns of what may
/// not be meant. `field`: of JSON and Parquet, which all sources are then; else all are text or
/// Parquet. Throws Error where nothing is to be read.
std::vector<texts::Source> find_sources(const std::vector<std::string>& arguments,
                                        const std::optional<std::string>& field);

/// The options that say what of a source is a document.
Option separator_option(std::optional<std::string>& to);
Option field_option(std::optional<std::string>& to);

}  // namespace ostrakon::apps::data_program
