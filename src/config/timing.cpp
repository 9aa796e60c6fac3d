// SPDX-License-Identifier: Apache-2.0
#include <Teuchos_StackedTimer.hpp>
#include <algorithm>
#include <array>
#include <iomanip>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/timing.hpp>
#include <sstream>
#include <stdexcept>
#include <vector>

namespace ostrakon::config {
namespace {

constexpr const char* root_name = "total";
constexpr char separator = '@';  // of Teuchos, between a timer's name and its parent's

/// One timer on this rank.
struct Reading {
  std::string path;
  double seconds = 0.0;
  unsigned long calls = 0;
};

void check(int status) { require(status == MPI_SUCCESS, "MPI failed in the timing report"); }

/// `local` reduced over `comm`; on rank 0 only.
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

/// The last name of a path, indented by its depth.
std::string indented_name(const std::string& path) {
  const auto depth = static_cast<std::size_t>(std::count(path.begin(), path.end(), separator));
  const std::size_t last = path.rfind(separator);
  return std::string(2 * depth, ' ') + (last == std::string::npos ? path : path.substr(last + 1));
}

std::string format_table(const std::vector<Reading>& readings, const std::vector<double>& least,
                         const std::vector<double>& sum, const std::vector<double>& most,
                         int ranks) {
  std::size_t width = 6;
  for (const Reading& reading : readings)
    width = std::max(width, indented_name(reading.path).size());
  const int name_width = static_cast<int>(width) + 2;
  std::ostringstream out;
  out << std::left << std::setw(name_width) << "timer" << std::right << std::setw(10) << "calls"
      << std::setw(12) << "min s" << std::setw(12) << "mean s" << std::setw(12) << "max s" << '\n';
  out << std::fixed << std::setprecision(3);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    out << std::left << std::setw(name_width) << indented_name(readings[i].path) << std::right
        << std::setw(10) << readings[i].calls << std::setw(12) << least[i] << std::setw(12)
        << sum[i] / ranks << std::setw(12) << most[i] << '\n';
  }
  return out.str();
}

/// Pre-order: every timer after its parent and before its parent's next child.
std::vector<std::string> in_tree_order(const std::vector<std::string>& paths) {
  std::vector<std::string> ordered;
  for (const std::string& path : paths) {
    const std::size_t last = path.rfind(separator);
    const std::string parent = last == std::string::npos ? "" : path.substr(0, last);
    const std::string prefix = parent + separator;
    const auto within = [&](const std::string& other) {
      return other == parent || other.rfind(prefix, 0) == 0;
    };
    const auto place = std::find_if(ordered.rbegin(), ordered.rend(), within).base();
    ordered.insert(place == ordered.begin() ? ordered.end() : place, path);
  }
  return ordered;
}

}  // namespace

struct Timers::Implementation {
  Teuchos::StackedTimer timer{root_name};
  std::string path = root_name;
  std::vector<std::string> paths = {root_name};  // in the order in which they were first met

  std::vector<Reading> readings() const {
    std::vector<Reading> result;
    for (const std::string& one : in_tree_order(paths)) {
      const Teuchos::BaseTimer* base = timer.findBaseTimer(one);
      result.push_back({one, base->accumulatedTime(), base->numCalls()});
    }
    return result;
  }
};

Timers::Timers() : implementation_(std::make_unique<Implementation>()) {}
Timers::~Timers() {
  // Teuchos tells Kokkos' tools of the total as a region: it must end, too.
  stop_down_to(0);
  implementation_->timer.stopBaseTimer();
}

void Timers::start(const std::string& name) {
  Implementation& self = *implementation_;
  // Teuchos' regions would go to the Kokkos that Teuchos was built with, perhaps another than ours.
  self.timer.start(name, false);
  (self.path += separator) += name;
  if (std::find(self.paths.begin(), self.paths.end(), self.path) == self.paths.end()) {
    self.paths.push_back(self.path);
  }
}

void Timers::stop(const std::string& name) {
  Implementation& self = *implementation_;
  const std::size_t last = self.path.rfind(separator);
  if (last == std::string::npos || self.path.compare(last + 1, std::string::npos, name) != 0) {
    throw std::logic_error("stop of the timer " + name + " while " + self.path + " runs");
  }
  self.timer.stop(name, false);
  self.path.resize(last);
}

std::size_t Timers::running() const {
  const std::string& path = implementation_->path;
  return static_cast<std::size_t>(std::count(path.begin(), path.end(), separator));
}

void Timers::stop_down_to(std::size_t count) {
  while (running() > count) {
    const std::string& path = implementation_->path;
    stop(path.substr(path.rfind(separator) + 1));
  }
}

std::string Timers::report(MPI_Comm comm) {
  Implementation& self = *implementation_;
  self.timer.stopBaseTimer();
  std::vector<Reading> readings = self.readings();
  self.timer.startBaseTimer();
  readings.front().calls = 1;  // every report stops the total for a moment
  int rank = 0, ranks = 1;
  check(MPI_Comm_rank(comm, &rank));
  check(MPI_Comm_size(comm, &ranks));
  if (!same_everywhere(static_cast<int>(readings.size()), comm)) {
    return rank == 0 ? "timing: the ranks have different timers\n" : "";
  }
  std::vector<double> seconds;
  for (const Reading& reading : readings) seconds.push_back(reading.seconds);
  const std::vector<double> least = reduce(seconds, MPI_MIN, comm);
  const std::vector<double> sum = reduce(seconds, MPI_SUM, comm);
  const std::vector<double> most = reduce(seconds, MPI_MAX, comm);
  return rank == 0 ? format_table(readings, least, sum, most, ranks) : "";
}

}  // namespace ostrakon::config
