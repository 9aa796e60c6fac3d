// SPDX-License-Identifier: Apache-2.0
#include "records.hpp"

#include <algorithm>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/text/json_record.hpp>
#include <sstream>

namespace ostrakon::apps {

std::string read_all(const std::string& path) {
  const PlainFile file(path, PlainFile::Mode::read);
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, file.size(), bytes.data());
  return bytes;
}

namespace {

Json parse_object(const std::string& line) {
  Json record;
  try {
    record = texts::parse_record(line);
  } catch (const Error& error) {
    throw Error(text("is not JSON (", error.what(), "); expected a JSON object"));
  }
  require(record.is_object(), "expected a JSON object");
  return record;
}

}  // namespace

void for_each_record(const std::string& path, const std::function<void(const Json&)>& take) {
  std::istringstream lines(read_all(path));
  std::int64_t number = 0, records = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      take(parse_object(line));
      ++records;
    } catch (const Error& error) {
      throw Error(text(path, ", line ", number, ": ", error.what()));
    }
  }
  require(records > 0, path, ": has no lines; expected a JSON object in each");
}

std::string text_of(const Json& record, const char* key) {
  require(record.contains(key) && record[key].is_string(), "expected a text as `", key, "`");
  return record[key];
}

void write_line(const std::string& line) {
  std::cout << line + "\n" << std::flush;
  require(std::cout.good(), "can't write to the standard output");
}

void write_found(const std::string& file, const Json& found, bool as_json) {
  if (as_json) {
    Json line;
    line["file"] = file;
    line.update(found);
    return write_line(line.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  std::string lines = printable(file);
  for (const auto& [name, value] : found.items()) {
    std::string shown = name;
    for (char& one : shown)
      if (one == '_') one = ' ';
    lines += "\n  " + shown + std::string(24 - std::min<std::size_t>(shown.size(), 23), ' ');
    lines += value.is_number_float() ? print("%.8g", value.get<double>())
                                     : format_count(value.get<std::int64_t>());
  }
  write_line(lines);
}

}  // namespace ostrakon::apps
