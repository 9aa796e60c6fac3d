// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <ostrakon/watch/verdict.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps::launch_program {

/// Looks for the verdict of a job that begins now, each second, in a thread of its own: a file
/// system that does not answer must not keep this process from its end.
class NewVerdict {
 public:
  /// `earlier`: verdicts of other jobs.
  NewVerdict(const std::string& folder, const std::vector<watch::Verdict>& earlier);
  ~NewVerdict();
  NewVerdict(const NewVerdict&) = delete;
  NewVerdict& operator=(const NewVerdict&) = delete;

  bool is_there() const;
  /// Looks for up to `seconds`.
  bool comes_within(double seconds) const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// Returns the hosts that verdicts of `times` jobs or more have named, in order of names.
std::vector<std::string> named_hosts(const std::vector<watch::Verdict>& verdicts,
                                     std::int64_t times);

/// Returns the step in which each of the last `jobs` jobs has ended, where it is the same.
std::optional<std::int64_t> step_of_all(const std::vector<watch::Verdict>& verdicts,
                                        std::int64_t jobs);

}  // namespace ostrakon::apps::launch_program
