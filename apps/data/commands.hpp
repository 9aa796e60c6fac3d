// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/data/token_file.hpp>

#include "../common/program.hpp"

/// The commands of ostrakon-data, and functions that they share.
namespace ostrakon::apps::data_program {

constexpr const char* program = "ostrakon-data";

Command build_command();
Command import_command();
Command info_command();
Command verify_command();
Command show_command();
Command train_tokenizer_command();

/// What a token file stores about how it was made. Throws Error, naming the first argument that is
/// not UTF-8.
data::Provenance provenance_of(const Given& given);

/// --output and --overwrite. `what`: "the beginning of names".
struct Written {
  std::string path;
  bool overwrite = false;
};
std::vector<Option> output_options(Written& to, const std::string& placeholder, const char* what);

/// Prints how often the tokens that end documents are there: at how many documents not at all,
/// once, or more often. Nothing for a file that does not name them.
void print_document_ends(const data::TokenFile& file);

/// Formats four digits.
std::string rounded(double value);

/// Writes a warning to the standard error.
void warn(const std::string& words);

/// Prints a line on the content of a token file.
void print_written(const std::string& path, const data::TokenFileWriter& writer);

}  // namespace ostrakon::apps::data_program
