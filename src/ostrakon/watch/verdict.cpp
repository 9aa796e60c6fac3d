// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/watch/verdict.hpp>

#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/watch/flight.hpp>
#include <sstream>

namespace ostrakon::watch {

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
  const nlohmann::ordered_json row = {{"time", utc_time()},
                                      {"job", job.str()},
                                      {"rank", verdict.rank},
                                      {"host", verdict.host},
                                      {"reason", verdict.reason}};
  std::ofstream file(folder + "/watchdog.jsonl", std::ios::app);
  file << row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace ostrakon::watch
