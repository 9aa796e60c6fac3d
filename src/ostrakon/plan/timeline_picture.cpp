// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/timeline_picture.hpp>

#include <algorithm>
#include <array>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/report.hpp>
#include <set>

namespace ostrakon::plan {
namespace {

constexpr double left = 120.0, right = 40.0, top = 74.0, lane_height = 26.0, lane_gap = 8.0,
                 plot_width = 1200.0, memory_height = 180.0, least_pixels = 0.5;

/// Actions of one kind, one after the other.
struct Bar {
  Kind kind = Kind::begin;
  double begin = 0.0, end = 0.0;
  int actions = 1;
  std::string name;  ///< of the first
};

class Timeline {
 public:
  Timeline(const StepPlan& plan, const Timing& timing, const std::vector<MeasuredAction>& measured)
      : plan_(plan), timing_(timing), measured_(measured), seconds_(timing.seconds) {
    for (const MeasuredAction& action : measured) seconds_ = std::max(seconds_, action.end);
    std::set<Stream> used;
    for (std::size_t a = 0; a < plan.actions.size(); ++a)
      if (timing.ends[a] > timing.begins[a]) used.insert(plan.actions[a].stream);
    for (const MeasuredAction& action : measured) used.insert(action.stream);
    streams_.assign(used.begin(), used.end());
  }

  Drawing draw(const std::string& title) const {
    std::string text = words(24, 34, "title ink", title);
    text += words(
        24, 55, "small soft",
        print("%.4g s a step%s. Widths are times. Below: what is live in device memory.",
              timing_.seconds, measured_.empty() ? "" : "; lower lanes are what was measured"));
    double y = top;
    std::set<Kind> kinds;
    for (const Stream stream : streams_) {
      text += lane(name(stream), y, predicted(stream), kinds);
      y += lane_height + (measured_.empty() ? lane_gap : 2.0);
      if (measured_.empty()) continue;
      text += lane("measured", y, of_measured(stream), kinds);
      y += lane_height + lane_gap;
    }
    text += axis(y) + memory(y + 40.0);
    std::vector<std::pair<std::string, std::string>> colors;
    for (const Kind kind : kinds) colors.emplace_back(color(kind), name(kind));
    const double end = y + 40.0 + memory_height;
    text += legend("actions", left, end + 30.0, colors);
    std::vector<std::pair<std::string, std::string>> categories;
    for (int c = 0; c < plan::categories; ++c)
      if (most_[c] > 0)
        categories.emplace_back(color(static_cast<Category>(c)), name(static_cast<Category>(c)));
    text += legend("memory", left, end + 54.0, categories);
    return {left + plot_width + right, end + 76.0, std::move(text)};
  }

 private:
  double x(double seconds) const { return left + plot_width * seconds / seconds_; }

  std::vector<Bar> predicted(Stream stream) const {
    std::vector<Bar> bars;
    for (std::size_t a = 0; a < plan_.actions.size(); ++a) {
      const Action& action = plan_.actions[a];
      if (action.stream != stream || !(timing_.ends[a] > timing_.begins[a])) continue;
      bars.push_back({action.kind, timing_.begins[a], timing_.ends[a], 1, plan_.describe(action)});
    }
    return joined(std::move(bars));
  }

  std::vector<Bar> of_measured(Stream stream) const {
    std::vector<Bar> bars;
    for (const MeasuredAction& action : measured_)
      if (action.stream == stream && action.end > action.begin)
        bars.push_back({action.kind, action.begin, action.end, 1, name(action.kind)});
    return joined(std::move(bars));
  }

  /// In the order of time; those too short to be seen together with their neighbours.
  std::vector<Bar> joined(std::vector<Bar> bars) const {
    std::stable_sort(bars.begin(), bars.end(),
                     [](const Bar& a, const Bar& b) { return a.begin < b.begin; });
    const double least = least_pixels * seconds_ / plot_width;
    std::vector<Bar> all;
    for (Bar& bar : bars) {
      const bool is_short = bar.end - bar.begin < least;
      if (!all.empty() && bar.begin - all.back().end < least &&
          (is_short || all.back().end - all.back().begin < least)) {
        // The longer one gives the color.
        if (bar.end - bar.begin > all.back().end - all.back().begin) all.back().kind = bar.kind;
        all.back().end = std::max(all.back().end, bar.end);
        ++all.back().actions;
        continue;
      }
      all.push_back(std::move(bar));
    }
    return all;
  }

  std::string lane(const char* label, double y, const std::vector<Bar>& bars,
                   std::set<Kind>& kinds) const {
    std::string text =
        words(left - 14, y + 0.5 * lane_height + 4, "small ink", label, "text-anchor=\"end\"") +
        print("<rect class=\"lane\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", left,
              y, plot_width, lane_height);
    for (const Bar& bar : bars) {
      kinds.insert(bar.kind);
      const std::string what =
          bar.actions == 1 ? bar.name : print("%d actions from ", bar.actions) + bar.name;
      text += print("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\">",
                    x(bar.begin), y, std::max(0.2, x(bar.end) - x(bar.begin)), lane_height,
                    color(bar.kind)) +
              "<title>" + escape(what + print(": %.4g to %.4g s", bar.begin, bar.end)) +
              "</title></rect>\n";
    }
    return text;
  }

  std::string axis(double y) const {
    std::string text;
    constexpr int ticks = 5;
    for (int tick = 0; tick <= ticks; ++tick) {
      const double seconds = seconds_ * tick / ticks;
      text += words(x(seconds), y + 12, "small soft", print("%.3g s", seconds),
                    "text-anchor=\"middle\"");
    }
    return text;
  }

  /// The most bytes of each category that are live in each pixel's time.
  std::string memory(double y) const {
    constexpr int columns = static_cast<int>(plot_width);
    struct Change {
      double time;
      int category;
      std::int64_t bytes;
    };
    std::vector<Change> changes;
    CategoryBytes live{};
    for (const Buffer& buffer : plan_.buffers) {
      if (buffer.space != Space::device) continue;
      const auto category = static_cast<std::size_t>(buffer.category);
      if (buffer.persistent) {
        live[category] += buffer.bytes;
        continue;
      }
      if (buffer.first < 0) continue;
      const int number = static_cast<int>(category);
      const double begin = timing_.begins[static_cast<std::size_t>(buffer.first)];
      const double end = timing_.ends[static_cast<std::size_t>(buffer.last)];
      if (!(end > begin)) continue;
      changes.push_back({begin, number, buffer.bytes});
      changes.push_back({end, number, -buffer.bytes});
    }
    std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
      return a.time != b.time ? a.time < b.time : a.bytes < b.bytes;
    });
    const auto total = [](const CategoryBytes& bytes) {
      std::int64_t sum = 0;
      for (const std::int64_t of_category : bytes) sum += of_category;
      return sum;
    };
    std::vector<CategoryBytes> in_column(columns);
    std::size_t next = 0;
    std::int64_t highest = 1;
    for (int column = 0; column < columns; ++column) {
      const double end = seconds_ * (column + 1) / columns;
      CategoryBytes most = live;
      while (next < changes.size() && changes[next].time <= end) {
        live[static_cast<std::size_t>(changes[next].category)] += changes[next].bytes;
        ++next;
        if (total(live) > total(most)) most = live;
      }
      in_column[static_cast<std::size_t>(column)] = most;
      highest = std::max(highest, total(most));
      for (int c = 0; c < plan::categories; ++c)
        most_[c] = std::max(most_[c], most[static_cast<std::size_t>(c)]);
    }
    std::string text =
        words(left - 14, y + 12, "small ink", format_bytes(highest), "text-anchor=\"end\"");
    const double scale = memory_height / static_cast<double>(highest);
    std::vector<double> base(columns, 0.0);
    for (int c = 0; c < plan::categories; ++c) {
      if (most_[c] == 0) continue;
      std::string upper, lower;
      for (int column = 0; column < columns; ++column) {
        const auto i = static_cast<std::size_t>(column);
        const double before = base[i];
        base[i] += scale * static_cast<double>(in_column[i][static_cast<std::size_t>(c)]);
        upper += print("%c%d %.1f", column == 0 ? 'M' : 'L', static_cast<int>(left) + column,
                       y + memory_height - base[i]);
        lower =
            print("L%d %.1f", static_cast<int>(left) + column, y + memory_height - before) + lower;
      }
      text +=
          "<path d=\"" + upper + lower + "Z\" fill=\"" + color(static_cast<Category>(c)) + "\"/>\n";
    }
    return text;
  }

  const StepPlan& plan_;
  const Timing& timing_;
  const std::vector<MeasuredAction>& measured_;
  double seconds_;
  std::vector<Stream> streams_;
  mutable std::array<std::int64_t, plan::categories> most_{};
};

}  // namespace

Drawing draw_timeline(const StepPlan& plan, const Timing& timing,
                      const std::vector<MeasuredAction>& measured, const std::string& title) {
  return Timeline(plan, timing, measured).draw(title);
}

}  // namespace ostrakon::plan
