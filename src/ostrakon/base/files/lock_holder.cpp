// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/base/files/lock_holder.hpp>

#include <unistd.h>

#include <charconv>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <random>
#include <sstream>

namespace ostrakon {
namespace {

constexpr const char* title = "This folder is in use by a run of Ostrakon; see docs/jobs.md.";

std::optional<std::int64_t> whole(const std::string& digits) {
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, failure] = std::from_chars(digits.data(), end, value);
  if (failure != std::errc() || stopped != end) return std::nullopt;
  return value;
}

}  // namespace

LockHolder this_holder(std::chrono::milliseconds interval) {
  LockHolder holder;
  std::random_device random;
  holder.id = format_hex(std::uint64_t{random()} << 32 | random());
  holder.host = host_name();
  holder.boot = boot_id();
  holder.process_namespace = process_namespace();
  holder.process = getpid();
  holder.started = process_start(holder.process);
  holder.since = utc_time();
  holder.job = batch_job();
  holder.interval = interval;
  return holder;
}

std::string write_holder(const LockHolder& holder) {
  return text(title, "\nid: ", holder.id, "\nhost: ", holder.host, "\nboot: ", holder.boot,
              "\nprocesses: ", holder.process_namespace, "\nprocess: ", holder.process,
              "\nstarted: ", holder.started, "\nsince: ", holder.since, "\njob: ", holder.job,
              "\ninterval: ", holder.interval.count(), "\nrenewed: ", holder.renewed, "\n");
}

std::optional<LockHolder> read_holder(const std::string& lines) {
  std::istringstream stream(lines);
  std::string line;
  if (!std::getline(stream, line) || line != title) return std::nullopt;
  std::map<std::string, std::string> found;
  while (std::getline(stream, line)) {
    const std::size_t colon = line.find(": ");
    // The text is shown to people, so characters that a terminal acts on are replaced.
    for (char& one : line)
      if (one < ' ' || one > '~') one = '?';
    if (colon != std::string::npos) found[line.substr(0, colon)] = line.substr(colon + 2);
  }
  const auto process = whole(found["process"]), started = whole(found["started"]),
             interval = whole(found["interval"]), renewed = whole(found["renewed"]);
  if (found["id"].empty()) return std::nullopt;
  LockHolder holder;
  holder.id = found["id"];
  holder.host = found["host"];
  holder.boot = found["boot"];
  if (!process || !started || !interval || !renewed) return holder;
  holder.process_namespace = found["processes"];
  holder.process = *process;
  holder.started = *started;
  holder.since = found["since"];
  holder.job = found["job"];
  holder.interval = std::chrono::milliseconds(*interval);
  holder.renewed = *renewed;
  return holder;
}

std::string describe(const LockHolder& holder) {
  if (holder.process == 0) return text("a process on host ", holder.host);
  return text("process ", holder.process, " on host ", holder.host, " since ", holder.since,
              holder.job.empty() ? "" : " (" + holder.job + ")");
}

Presence presence_of(const LockHolder& them, const LockHolder& us, bool kernel_lock) {
  // Two hosts can have the same name, if they are copies of one image: the boot id tells them
  // apart.
  const bool same_host = them.host == us.host && !us.boot.empty() && them.boot == us.boot;
  if (!same_host) return Presence::unknown;
  if (kernel_lock) return Presence::gone;
  if (them.process <= 0 || them.process_namespace != us.process_namespace) return Presence::unknown;
  return presence_of(them.started, process_start(them.process), is_no_process(them.process));
}

Presence presence_of(std::int64_t started, std::int64_t now, bool is_no_process) {
  if (is_no_process) return Presence::gone;
  if (started < 0 || now < 0) return Presence::unknown;
  return started == now ? Presence::present : Presence::gone;
}

}  // namespace ostrakon
