// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/config/timing.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iomanip>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>
#include <stdexcept>
#include <vector>

namespace ostrakon::config {
namespace {

/// One timer on this rank.
struct Timer {
  std::string name;
  std::size_t parent = 0;
  int depth = 0;
  double seconds = 0.0;  // sum over finished calls
  std::int64_t calls = 0;
  double begin = 0.0;  // begin of the running call
};

void check(int status) { require(status == MPI_SUCCESS, "MPI failed in the timing report"); }

/// Reduces `local` over `comm`; the result is on rank 0 only.
std::vector<double> reduce(std::vector<double> local, MPI_Op operation, MPI_Comm comm) {
  std::vector<double> result(local.size());
  check(MPI_Reduce(local.data(), result.data(), static_cast<int>(local.size()), MPI_DOUBLE,
                   operation, 0, comm));
  return result;
}

bool same_everywhere(int count, MPI_Comm comm) {
  std::array<int, 2> extremes = {count, -count};
  check(MPI_Allreduce(MPI_IN_PLACE, extremes.data(), 2, MPI_INT, MPI_MAX, comm));
  return extremes[0] == -extremes[1];
}

std::string indented_name(const Timer& timer) {
  return std::string(2 * static_cast<std::size_t>(timer.depth), ' ') + timer.name;
}

std::string format_table(const std::vector<Timer>& timers, const std::vector<double>& least,
                         const std::vector<double>& sum, const std::vector<double>& most,
                         int ranks) {
  std::size_t width = 6;
  for (const Timer& timer : timers) width = std::max(width, indented_name(timer).size());
  const int name_width = static_cast<int>(width) + 2;
  TextWriter out;
  out << std::left << std::setw(name_width) << "timer" << std::right << std::setw(10) << "calls"
      << std::setw(12) << "min s" << std::setw(12) << "mean s" << std::setw(12) << "max s" << '\n';
  out << std::fixed << std::setprecision(3);
  for (std::size_t i = 0; i < timers.size(); ++i) {
    out << std::left << std::setw(name_width) << indented_name(timers[i]) << std::right
        << std::setw(10) << timers[i].calls << std::setw(12) << least[i] << std::setw(12)
        << sum[i] / ranks << std::setw(12) << most[i] << '\n';
  }
  return out.str();
}

}  // namespace

struct Timers::Implementation {
  std::vector<Timer> timers = {{"total", 0, 0, 0.0, 1, seconds_now()}};  // by first use
  std::size_t current = 0;

  /// Returns the timer of that name under the running one; creates it if needed.
  std::size_t find(const std::string& name) {
    for (std::size_t i = 1; i < timers.size(); ++i)
      if (timers[i].parent == current && timers[i].name == name) return i;
    timers.push_back({name, current, timers[current].depth + 1});
    return timers.size() - 1;
  }

  /// Lists each timer after its parent and before its parent's next child.
  void add_with_children(std::size_t index, std::vector<Timer>& list) const {
    list.push_back(timers[index]);
    for (std::size_t i = index + 1; i < timers.size(); ++i)
      if (timers[i].parent == index) add_with_children(i, list);
  }
};

Timers::Timers() : implementation_(std::make_unique<Implementation>()) {}
Timers::~Timers() = default;

void Timers::start(const std::string& name) {
  Implementation& self = *implementation_;
  self.current = self.find(name);
  self.timers[self.current].begin = seconds_now();
}

void Timers::stop(const std::string& name) {
  Implementation& self = *implementation_;
  Timer& timer = self.timers[self.current];
  if (self.current == 0 || timer.name != name)
    throw std::logic_error("stop of the timer " + name + " while " + timer.name + " runs");
  timer.seconds += seconds_now() - timer.begin;
  ++timer.calls;
  self.current = timer.parent;
}

void Timers::add(const std::string& name, double seconds) {
  Implementation& self = *implementation_;
  Timer& timer = self.timers[self.find(name)];
  timer.seconds += seconds;
  ++timer.calls;
}

std::size_t Timers::running() const {
  return static_cast<std::size_t>(implementation_->timers[implementation_->current].depth);
}

void Timers::stop_down_to(std::size_t count) {
  while (running() > count) stop(implementation_->timers[implementation_->current].name);
}

std::string Timers::report(MPI_Comm comm) {
  Implementation& self = *implementation_;
  self.timers[0].seconds = seconds_now() - self.timers[0].begin;
  std::vector<Timer> timers;
  self.add_with_children(0, timers);
  int rank = 0, ranks = 1;
  check(MPI_Comm_rank(comm, &rank));
  check(MPI_Comm_size(comm, &ranks));
  if (!same_everywhere(static_cast<int>(timers.size()), comm)) {
    return rank == 0 ? "timing: the ranks have different timers\n" : "";
  }
  std::vector<double> seconds;
  for (const Timer& timer : timers) seconds.push_back(timer.seconds);
  const std::vector<double> least = reduce(seconds, MPI_MIN, comm);
  const std::vector<double> sum = reduce(seconds, MPI_SUM, comm);
  const std::vector<double> most = reduce(seconds, MPI_MAX, comm);
  return rank == 0 ? format_table(timers, least, sum, most, ranks) : "";
}

}  // namespace ostrakon::config
