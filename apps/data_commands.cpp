// SPDX-License-Identifier: Apache-2.0
#include "data_commands.hpp"

#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <system_error>

#include "output_file.hpp"

namespace ostrakon::apps::data_program {

std::string join(int argc, char** argv) {
  std::string joined;
  for (int i = 0; i < argc; ++i) joined += (i == 0 ? "" : " ") + std::string(argv[i]);
  return joined;
}

void require_utf8_arguments(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) require_utf8(text("argument ", i), argv[i]);
}

std::string rounded(double value) {
  TextWriter stream;
  stream.precision(4);
  stream << value;
  return stream.str();
}

std::string counted(std::int64_t count, const std::string& noun) {
  return format_count(count) + " " + noun + (count == 1 ? "" : "s");
}

void warn(const std::string& words) {
  std::cout.flush();
  std::cerr << program << ": warning: " << printable(words) << std::endl;
}

void print_written(const std::string& path, const data::TokenFileWriter& writer) {
  std::cout << "  " << printable(path) << ": " << counted(writer.document_count(), "document")
            << ", " << counted(writer.token_count(), "token");
  if (writer.byte_count() > 0) std::cout << ", " << format_bytes(writer.byte_count()) << " of text";
  std::cout << "\n";
}

void make_parent_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(parent, failure);
  require(!failure, "can't make folder '", parent.string(), "': ", failure.message());
}

std::string output_option(const CommandLine& arguments, const std::string& missing,
                          const std::string& ending) {
  const std::string output = arguments.text_option("--output").value_or("");
  require(!output.empty(), missing);
  require(output.back() != '/', "--output is '", output, "', a folder; expected ", ending, "'",
          output, "NAME'");
  require_output("--output", output);
  return output;
}

}  // namespace ostrakon::apps::data_program
