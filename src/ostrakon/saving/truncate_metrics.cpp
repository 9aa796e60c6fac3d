// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/truncate_metrics.hpp>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/new_file.hpp>

namespace ostrakon::train {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t chunk_bytes = std::int64_t{1} << 20;

/// Calls take(line, has_end) for every line of a file, without its end, in order.
template <class Take>
void for_each_line(const PlainFile& file, std::int64_t bytes, const Take& take) {
  std::string line, chunk;
  for (std::int64_t at = 0; at < bytes;) {
    chunk.resize(static_cast<std::size_t>(std::min(chunk_bytes, bytes - at)));
    file.read(at, static_cast<std::int64_t>(chunk.size()), chunk.data());
    at += static_cast<std::int64_t>(chunk.size());
    for (std::size_t begin = 0; begin < chunk.size();) {
      const std::size_t end = std::min(chunk.find('\n', begin), chunk.size());
      line.append(chunk, begin, end - begin);
      if (end < chunk.size()) {
        take(line, true);
        line.clear();
      }
      begin = end + 1;
    }
  }
  if (!line.empty()) take(line, false);
}

/// Whether a line is a row that was cut off while it was written, of a step after `last` or with an
/// incomplete step.
bool is_rest_of_row_after(const std::string& line, std::int64_t last) {
  const std::string start = "{\"step\":";
  if (line.size() <= start.size()) return start.compare(0, line.size(), line) == 0;
  if (line.compare(0, start.size(), start) != 0) return false;
  std::int64_t step = -1;
  const char* const end = line.data() + line.size();
  const auto [stop, problem] = std::from_chars(line.data() + start.size(), end, step);
  return problem == std::errc() && (stop == end || (*stop == ',' && step > last));
}

bool is_after(const std::string& line, bool has_end, std::int64_t last) {
  const Json row = Json::parse(line, nullptr, false);
  if (row.is_discarded()) return !has_end && is_rest_of_row_after(line, last);
  if (!row.is_object()) return false;
  const auto step = row.find("step");
  return step != row.end() && step->is_number_integer() && step->get<std::int64_t>() > last;
}

struct Survey {
  std::int64_t keep = 0;      ///< bytes before the first row to be removed
  bool cuts = false;          ///< whether some row is to be removed
  bool keeps_behind = false;  ///< whether a line behind such a row is to be kept
  bool ends = true;           ///< whether the last line has an end
};

Survey survey(const PlainFile& file, std::int64_t bytes, std::int64_t last) {
  Survey found;
  for_each_line(file, bytes, [&](const std::string& line, bool has_end) {
    found.ends = has_end;
    if (is_after(line, has_end, last))
      found.cuts = true;
    else if (found.cuts)
      found.keeps_behind = true;
    else
      found.keep += static_cast<std::int64_t>(line.size()) + 1;
  });
  return found;
}

/// Writes the kept lines to a new file, and replaces the old one only when it is complete: an
/// interruption loses no rows.
void write_anew(const PlainFile& file, std::int64_t bytes, std::int64_t last) {
  NewFile kept(file.path());
  for_each_line(file, bytes, [&](const std::string& line, bool has_end) {
    if (is_after(line, has_end, last)) return;
    kept.write(line.data(), static_cast<std::int64_t>(line.size()));
    kept.write("\n", 1);
  });
  kept.finish();
}

}  // namespace

void truncate_metrics_after(const std::string& path, std::int64_t last) {
  std::error_code problem;
  const std::string real = std::filesystem::canonical(path, problem).string();
  require(!problem, "can't look at '", path, "': ", problem.message());
  const PlainFile file(real, PlainFile::Mode::read);
  const std::int64_t bytes = file.size();
  require(file.ends_at(bytes), "can't read '", path, "': reading finds another length than the ",
          bytes, " bytes that the system says");
  const Survey found = survey(file, bytes, last);
  if (found.keeps_behind) return write_anew(file, bytes, last);
  if (!found.cuts && found.ends) return;
  PlainFile changed(real, PlainFile::Mode::write);
  if (found.cuts)
    changed.resize(found.keep);
  else
    changed.write(bytes, 1, "\n");
  changed.sync();
  changed.close();
}

}  // namespace ostrakon::train
