// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/data_settings.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>

namespace ostrakon::data {
namespace {

constexpr const char* blanks = " \t\r\n";

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

std::optional<double> number_in(const std::string& word) {
  if (word.find_first_not_of("0123456789+-.eE") != std::string::npos) return std::nullopt;
  TextReader reader(word);
  double number = 0.0;
  reader >> number;
  if (!reader.eof() || reader.fail()) return std::nullopt;
  return number;
}

/// Reads "0.7 web.h5".
WeightedFile read_file(const std::string& item) {
  const std::size_t end = std::min(item.find_first_of(blanks), item.size());
  const std::optional<double> weight = number_in(item.substr(0, end));
  if (!weight || end == item.size()) return {item, 1.0};
  return {trimmed(item.substr(end)), *weight};
}

}  // namespace

std::vector<WeightedFile> read_files(const std::string& text) {
  if (text.empty()) return {};
  std::vector<WeightedFile> files;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    files.push_back(read_file(trimmed(text.substr(begin, end - begin))));
    begin = end + 1;
  }
  if (files.size() == 1) {
    // Blanks are part of a path, unless a weight or another file tells where it begins.
    if (files[0].weight == 1.0 && trimmed(text) == files[0].path) files[0].path = text;
  }
  double sum = 0.0;
  for (const WeightedFile& file : files) {
    require(!file.path.empty(), "a file between two ';' has no path; expected \"WEIGHT PATH; ",
            "WEIGHT PATH\"");
    require(file.weight >= 0.0 && file.weight <= most_weight, "the weight of '", file.path, "' is ",
            file.weight, "; expected 0 to ", most_weight);
    sum += file.weight;
  }
  require(sum > 0.0, "the weights of all files are 0; expected one above 0");
  for (const WeightedFile& file : files)
    require(file.weight == 0.0 || file.weight >= least_share * sum, "the weight of '", file.path,
            "' is ", file.weight, ", a share of ", file.weight / sum, "; expected 0, or at least ",
            least_share, " of the sum");
  return files;
}

std::string write_number(double number) {
  for (int digits = 1;; ++digits) {
    std::string shortest = print("%.*g", digits, number);
    if (digits == 17 || number_in(shortest) == number) return shortest;
  }
}

std::string write_files(const std::vector<WeightedFile>& files) {
  // "7 days.h5" alone would be days.h5 with a weight of 7.
  const auto is_path_alone = [](const std::string& path) {
    return read_file(trimmed(path)).path == trimmed(path);
  };
  if (files.size() == 1 && files[0].weight == 1.0 && is_path_alone(files[0].path))
    return files[0].path;
  std::string text;
  for (const WeightedFile& file : files)
    text += (text.empty() ? "" : "; ") + write_number(file.weight) + " " + file.path;
  return text;
}

}  // namespace ostrakon::data
