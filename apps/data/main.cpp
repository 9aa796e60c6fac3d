// SPDX-License-Identifier: Apache-2.0

// ostrakon-data: converts text to token files, and shows them.

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/version.hpp>

#include "../common/program.hpp"
#include "commands.hpp"

namespace ostrakon::apps::data_program {

data::Provenance provenance_of(const Given& given) {
  std::string joined = given.line[0];
  for (std::size_t i = 1; i < given.line.size(); ++i) {
    require_utf8(text("argument ", i), given.line[i]);
    joined += " " + given.line[i];
  }
  return {given.operands, text("ostrakon-data ", version()), joined};
}

std::string rounded(double value) { return print("%.4g", value); }

void warn(const std::string& words) {
  std::cout.flush();
  std::cerr << program << ": warning: " << printable(words) << std::endl;
}

void print_written(const std::string& path, const data::TokenFileWriter& writer) {
  std::cout << "  " << printable(path) << ": " << counted(writer.document_count(), "document")
            << ", " << counted(writer.token_count(), "token");
  if (writer.counted() < writer.token_count())
    std::cout << " (" << format_count(writer.counted()) << " count in the loss)";
  if (writer.byte_count() > 0) std::cout << ", " << format_bytes(writer.byte_count()) << " of text";
  std::cout << "\n";
}

std::vector<Option> output_options(Written& to, const std::string& placeholder, const char* what) {
  Value path = required(output(to.path));
  const bool is_folder = placeholder == "FOLDER";
  path.take = [&to, what, is_folder](const std::string& value) {
    to.path = value;
    while (is_folder && to.path.size() > 1 && to.path.back() == '/') to.path.pop_back();
    if (is_folder && !to.path.empty()) return std::string();
    const bool is_name = !value.empty() && value.back() != '/';
    return is_name ? std::string() : text(what, ", such as '", value, "NAME'");
  };
  return {
      {"--output", placeholder, path, "where to write; folders on the way are made"},
      {"--overwrite", "", flag(to.overwrite), "replace what has this name; else it is refused"}};
}

}  // namespace ostrakon::apps::data_program

int main(int argc, char** argv) {
  using namespace ostrakon::apps;
  using namespace ostrakon::apps::data_program;
  return run_serial_program({program,
                             "",
                             {build_command(), import_command(), info_command(), verify_command(),
                              show_command(), train_tokenizer_command()}},
                            argc, argv);
}
