// SPDX-License-Identifier: Apache-2.0
#include "fault_sweep_checks.hpp"

#include <nlohmann/json.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <ostrakon/data/token_file.hpp>
#include <sstream>
#include <stdexcept>
#include <support/scratch_folder.hpp>

namespace ostrakon::testing {

namespace fs = std::filesystem;

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void compare_bytes(const fs::path& found, const fs::path& expected) {
  expect(read_bytes(found.string()) == read_bytes(expected.string()),
         found.string() + " is not as without faults");
}

bool are_same_files(const fs::path& a, const fs::path& b) {
  return fs::is_regular_file(a) && fs::is_regular_file(b) &&
         read_bytes(a.string()) == read_bytes(b.string());
}

bool holds_files_of(const fs::path& folder, const fs::path& expected) {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(expected)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    if (!are_same_files(folder / fs::relative(entry.path(), expected), entry.path())) return false;
  }
  return files > 0;
}

std::vector<fs::path> entries(const fs::path& folder, const std::string& start) {
  std::vector<fs::path> found;
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().rfind(start, 0) == 0) found.push_back(entry.path());
  return found;
}

void compare_weights(const fs::path& found, const fs::path& expected) {
  const checkpoint::WeightsReader a(found.string()), b(expected.string());
  expect(a.parameters().size() == b.parameters().size(), "weights are missing");
  for (const auto& entry : b.parameters()) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : entry.shape) elements *= extent;
    std::vector<float> x(static_cast<std::size_t>(elements)), y(x.size());
    a.read(entry.unit, entry.parameter, entry.shape, x.data());
    b.read(entry.unit, entry.parameter, entry.shape, y.data());
    expect(x == y, found.string() + ": " + entry.parameter + " is not as without faults");
  }
}

void compare_tokens(const fs::path& found, const fs::path& expected) {
  const data::TokenFile a(found.string()), b(expected.string());
  a.verify();
  expect(a.info().checksum == b.info().checksum && a.info().byte_count == b.info().byte_count &&
             a.info().document_count == b.info().document_count,
         found.string() + " holds other text than without faults");
}

void verify_checkpoint(const fs::path& folder) {
  checkpoint::CheckpointReader(folder.string()).verify();
}

void verify_json(const fs::path& file) {
  const auto json = nlohmann::json::parse(read_bytes(file.string()), nullptr, false);
  expect(json.is_object() || json.is_array(), file.string() + " is not JSON");
}

void verify_metrics(const fs::path& file, std::int64_t steps) {
  std::istringstream stream(read_bytes(file.string()));
  std::int64_t step = 0;
  for (std::string line; std::getline(stream, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (row.contains("loss")) expect(row["step"] == ++step, "rows are missing in " + file.string());
  }
  expect(step == steps, file.string() + " ends early");
}

}  // namespace ostrakon::testing
