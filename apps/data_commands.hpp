// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/data/token_file.hpp>
#include <string>

#include "command_line.hpp"

/// The commands of ostrakon-data, and what they share. Each throws Error for what can't be done.
namespace ostrakon::apps::data_program {

constexpr const char* program = "ostrakon-data";

void build(int argc, char** argv);
void import_tokens(int argc, char** argv);
void info(int argc, char** argv);
void verify(int argc, char** argv);
void show(int argc, char** argv);

/// The command line, for a token file to keep.
std::string join(int argc, char** argv);

/// A token file keeps them, and its texts are UTF-8. Throws Error, naming the first that is not.
void require_utf8_arguments(int argc, char** argv);

/// Four digits.
std::string rounded(double value);

/// "1 file", "1,234 files".
std::string counted(std::int64_t count, const std::string& noun);

/// Writes a line to the standard error: what was done may not be what was wanted.
void warn(const std::string& words);

/// What a token file has in it, in a line.
void print_written(const std::string& path, const data::TokenFileWriter& writer);

void make_parent_folder(const std::string& path);

/// --output. Throws Error with `missing` where it is not given, and where it is a folder.
std::string output_option(const CommandLine& arguments, const std::string& missing,
                          const std::string& ending);

}  // namespace ostrakon::apps::data_program
