// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/data/token_file.hpp>
#include <string>

#include "command_line.hpp"

/// The commands of ostrakon-data, and functions that they share. Each command throws Error on
/// failure.
namespace ostrakon::apps::data_program {

constexpr const char* program = "ostrakon-data";

void build(int argc, char** argv);
void import_tokens(int argc, char** argv);
void info(int argc, char** argv);
void verify(int argc, char** argv);
void show(int argc, char** argv);

/// Joins the command line, which a token file stores.
std::string join(int argc, char** argv);

/// Throws Error, naming the first argument that is not UTF-8, as a token file stores the arguments.
void require_utf8_arguments(int argc, char** argv);

/// Formats four digits.
std::string rounded(double value);

/// Formats a count and its noun: "1 file", "1,234 files".
std::string counted(std::int64_t count, const std::string& noun);

/// Writes a warning to the standard error.
void warn(const std::string& words);

/// Prints a line on the content of a token file.
void print_written(const std::string& path, const data::TokenFileWriter& writer);

void make_parent_folder(const std::string& path);

/// Returns --output. Throws Error with `missing` if it is not given, and if it is a folder.
std::string output_option(const CommandLine& arguments, const std::string& missing,
                          const std::string& ending);

}  // namespace ostrakon::apps::data_program
