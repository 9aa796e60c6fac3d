// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/stragglers.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/format_ranks.hpp>
#include <ostrakon/base/middle.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/text.hpp>

namespace ostrakon::train {
namespace {

constexpr double least_share = 0.05;  // of a step, from which a cost matters
constexpr double slower = 1.5;        // communication that is that many times as long is slow

using RankNumbers = std::vector<int>;

const RankTimes& at(const std::vector<RankTimes>& ranks, int rank) {
  return ranks[static_cast<std::size_t>(rank)];
}

std::map<int, RankNumbers> by_stage(const std::vector<RankTimes>& ranks) {
  std::map<int, RankNumbers> stages;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    stages[at(ranks, rank).stage].push_back(rank);
  return stages;
}

Middle middle_of_part(const std::vector<RankTimes>& ranks, const RankNumbers& of_stage, Part part) {
  std::vector<double> values;
  for (const int rank : of_stage) values.push_back(at(ranks, rank)[part]);
  return middle_of(std::move(values), part == Part::communication ? Outliers::low : Outliers::high);
}

/// Returns by how much a value differs from the median, where that is an outlier; else 0.
double excess(double difference, const Middle& middle, double step) {
  return difference > std::max(least_share * step, middle.most(0.0) - middle.median) ? difference
                                                                                     : 0.0;
}

/// Whether a line is due in that window of several in a row: in the 2nd, 4th, 8th, ...
bool is_due(int windows) { return windows > 1 && (windows & (windows - 1)) == 0; }

const char* describe_part(Part part) {
  switch (part) {
    case Part::compute:
      return "compute";
    case Part::data:
      return "reading of data";
    case Part::copies:
      return "copying between host and device";
    case Part::between_steps:
      return "work between steps (output, saving)";
    case Part::communication:
      break;
  }
  return "communication";
}

double own_work(const RankTimes& times) {
  double seconds = 0.0;
  for (int p = 0; p < own_parts; ++p) seconds += times[static_cast<Part>(p)];
  return seconds;
}

/// Whether a time is told as a multiple of another one. Where that is next to nothing, how many
/// times as much it is says little.
bool has_ratio(double seconds, double usual) {
  constexpr double most_times = 100.0;
  return seconds < most_times * usual;
}

std::string whole_percent(double share) { return print("%.0f %%", 100.0 * share); }

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<RankTimes>& ranks) {
  std::vector<Straggler> late;
  for (const auto& [stage, of_stage] : by_stage(ranks)) {
    (void)stage;
    std::array<Middle, all_parts> middles;
    for (int p = 0; p < all_parts; ++p)
      middles[static_cast<std::size_t>(p)] = middle_of_part(ranks, of_stage, static_cast<Part>(p));
    const Middle& waits = middles[own_parts];
    for (const int rank : of_stage) {
      const RankTimes& times = at(ranks, rank);
      const double lateness = excess(waits.median - times[Part::communication], waits, times.step);
      Straggler found;
      double most = 0.0;
      for (int p = 0; p < own_parts; ++p) {
        const auto part = static_cast<Part>(p);
        const Middle& middle = middles[static_cast<std::size_t>(p)];
        const double more = excess(times[part] - middle.median, middle, times.step);
        if (more <= most) continue;
        most = more;
        found = {rank, part, times[part], middle.median, std::min(more, lateness) / times.step};
      }
      if (found.share > 0.0) late.push_back(found);
    }
  }
  std::sort(late.begin(), late.end(),
            [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
  return late;
}

double least_communication(const std::vector<RankTimes>& ranks) {
  double least = ranks.front()[Part::communication];
  for (const RankTimes& times : ranks) least = std::min(least, times[Part::communication]);
  return least;
}

std::string StragglerLog::add(const std::vector<RankTimes>& ranks, std::int64_t steps) {
  sums_.resize(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    sums_[r].stage = ranks[r].stage;
    sums_[r].add(ranks[r], static_cast<double>(steps));
  }
  steps_ += steps;
  late_ = find_stragglers(ranks);
  std::map<int, int> windows;
  std::vector<Straggler> told;
  for (const Straggler& one : late_) {
    const auto before = windows_.find(one.rank);
    const int count = before == windows_.end() ? 1 : before->second + 1;
    windows[one.rank] = count;
    if (is_due(count)) told.push_back(one);
  }
  windows_ = std::move(windows);
  return describe(told) + judge_communication(ranks, steps);
}

/// A slower network makes nobody late: it takes all ranks longer.
std::string StragglerLog::judge_communication(const std::vector<RankTimes>& ranks,
                                              std::int64_t steps) {
  constexpr std::size_t fewest = 3, most = 16;  // windows by which it is known what is usual
  if (2 * steps < every_) return "";            // means over few steps vary too much
  Window now{least_communication(ranks), {}};
  for (const RankTimes& times : ranks) now.own_work.push_back(own_work(times));
  std::string line;
  if (recent_.size() >= fewest) line = compare_with_recent(now, ranks.front().step);
  recent_.push_back(std::move(now));
  if (recent_.size() > most) recent_.pop_front();
  return line;
}

std::string StragglerLog::compare_with_recent(const Window& now, double step) {
  const auto usual_of = [this](const auto& value) {
    std::vector<double> values;
    for (const Window& window : recent_) values.push_back(value(window));
    return middle_of(std::move(values), Outliers::high).median;
  };
  const double usual = usual_of([](const Window& window) { return window.communication; });
  const double more = now.communication - usual;
  bool is_slow = now.communication >= slower * usual && more >= least_share * step;
  // Ranks that wait for each other in turn all communicate for longer, on any network.
  for (std::size_t r = 0; is_slow && r < now.own_work.size(); ++r)
    is_slow = now.own_work[r] - usual_of([r](const Window& window) { return window.own_work[r]; }) <
              0.5 * more;
  if (!is_slow) {
    slow_windows_ = 0;
    return "";
  }
  if (!is_due(++slow_windows_)) return "";
  return text("  communication takes every rank at least ",
              print("%.3g s a step, ", now.communication),
              has_ratio(now.communication, usual)
                  ? print("%.2f x as long as before", now.communication / usual)
                  : print("where it took %.3g s before", usual),
              ", which costs ", whole_percent(more / step),
              " of the step: the network is slower, or other work is on the machine\n");
}

std::string StragglerLog::describe(const std::vector<Straggler>& late) const {
  // Ranks of a host that are late by the same work are one line.
  std::map<std::pair<std::string, Part>, std::vector<Straggler>> lines;
  for (const Straggler& one : late)
    lines[{hosts_[static_cast<std::size_t>(one.rank)], one.part}].push_back(one);
  std::string all;
  for (const auto& [place, found] : lines) {
    RankNumbers ranks;
    Straggler worst = found.front();
    for (const Straggler& one : found) {
      ranks.push_back(one.rank);
      if (one.share > worst.share) worst = one;
    }
    const bool is_one = ranks.size() == 1;
    const std::string takes =
        has_ratio(worst.seconds, worst.median)
            ? print("%.2f x the median", worst.seconds / worst.median)
            : print("%.3g s a step, where the median is %.3g s", worst.seconds, worst.median);
    all += text("  ", format_ranks(ranks), " (", printable(place.first), is_one ? ") is" : ") are",
                " late: ", is_one ? "its " : "their ", describe_part(place.second), " takes ",
                is_one ? "" : "up to ", takes, ", which costs ", whole_percent(worst.share),
                " of the step\n");
  }
  return all;
}

std::string StragglerLog::summary() const {
  if (steps_ == 0) return "";
  std::vector<RankTimes> means(sums_.size());
  for (std::size_t r = 0; r < means.size(); ++r) {
    means[r].stage = sums_[r].stage;
    means[r].add(sums_[r], 1.0 / static_cast<double>(steps_));
  }
  const std::string lines = describe(find_stragglers(means));
  return lines.empty() ? "" : text("over ", steps_, " steps:\n", lines);
}

}  // namespace ostrakon::train
