// SPDX-License-Identifier: Apache-2.0
#include "verdicts.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <ostrakon/base/clock.hpp>
#include <set>
#include <thread>

namespace ostrakon::apps::launch_program {

struct NewVerdict::Shared {
  std::string folder;
  std::set<std::uint64_t> earlier;  // jobs
  std::atomic<bool> is_there{false}, is_over{false};

  void look() {
    const std::vector<watch::Verdict> verdicts = watch::read_verdicts(folder);
    is_there = std::any_of(verdicts.begin(), verdicts.end(),
                           [&](const watch::Verdict& one) { return earlier.count(one.job) == 0; });
  }
};

NewVerdict::NewVerdict(const std::string& folder, const std::vector<watch::Verdict>& earlier)
    : shared_(std::make_shared<Shared>()) {
  shared_->folder = folder;
  for (const watch::Verdict& one : earlier) shared_->earlier.insert(one.job);
  std::thread([shared = shared_] {
    while (!shared->is_over && !shared->is_there) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      shared->look();
    }
  }).detach();
}

NewVerdict::~NewVerdict() { shared_->is_over = true; }

bool NewVerdict::is_there() const { return shared_->is_there; }

bool NewVerdict::comes_within(double seconds) const {
  for (const double last = seconds_now() + seconds; !is_there() && seconds_now() < last;)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return is_there();
}

std::vector<std::string> named_hosts(const std::vector<watch::Verdict>& verdicts,
                                     std::int64_t times) {
  std::map<std::string, std::int64_t> counts;
  for (const watch::Verdict& one : verdicts)
    if (!one.host.empty()) ++counts[one.host];
  std::vector<std::string> hosts;
  for (const auto& [host, count] : counts)
    if (count >= times) hosts.push_back(host);
  return hosts;
}

std::optional<std::int64_t> step_of_all(const std::vector<watch::Verdict>& verdicts,
                                        std::int64_t jobs) {
  if (jobs == 0 || static_cast<std::int64_t>(verdicts.size()) < jobs) return std::nullopt;
  const std::int64_t step = verdicts.back().step;
  const bool is_same = std::all_of(verdicts.end() - jobs, verdicts.end(),
                                   [&](const watch::Verdict& one) { return one.step == step; });
  return is_same ? std::optional(step) : std::nullopt;
}

}  // namespace ostrakon::apps::launch_program
