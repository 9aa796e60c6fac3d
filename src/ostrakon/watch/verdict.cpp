// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/verdict.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/watch/flight.hpp>
#include <set>
#include <sstream>
#include <utility>

namespace ostrakon::watch {
namespace {

using Json = nlohmann::ordered_json;

std::string path_in(const std::string& folder) { return folder + "/watchdog.jsonl"; }

}  // namespace

void write_line(const std::string& line) {
  const std::string whole = line + '\n';
  for (std::size_t done = 0; done < whole.size();) {
    const ssize_t wrote = ::write(STDERR_FILENO, whole.data() + done, whole.size() - done);
    if (wrote <= 0) return;
    done += static_cast<std::size_t>(wrote);
  }
}

void say_why(const Verdict& verdict, const std::string& folder) {
  write_line(text("watchdog: ", verdict.reason,
                  folder.empty() ? "" : text("; flight records are in ", flight_folder(folder))));
}

void add_verdict(const Verdict& verdict, const std::string& folder) {
  if (folder.empty()) return;
  std::ostringstream job;
  job << std::hex << verdict.job;
  const Json row = {{"time", utc_time()},   {"job", job.str()},     {"step", verdict.step},
                    {"rank", verdict.rank}, {"host", verdict.host}, {"reason", verdict.reason}};
  std::ofstream file(path_in(folder), std::ios::app);
  file << row.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::vector<Verdict> read_verdicts(const std::string& folder) {
  // Listing a folder makes NFS look for new files.
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) (void)entry;
  std::vector<Verdict> verdicts;
  std::set<std::uint64_t> jobs;
  std::ifstream file(path_in(folder));
  for (std::string line; std::getline(file, line);) {
    try {
      const Json row = Json::parse(line);
      Verdict one;
      one.job = std::stoull(row.at("job").get<std::string>(), nullptr, 16);
      one.step = row.at("step");
      one.rank = row.at("rank");
      one.host = row.at("host");
      one.reason = row.at("reason");
      if (jobs.insert(one.job).second) verdicts.push_back(std::move(one));
    } catch (const std::exception&) {
      continue;  // of two that were written at once
    }
  }
  return verdicts;
}

}  // namespace ostrakon::watch
