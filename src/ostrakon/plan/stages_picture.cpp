// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/stages_picture.hpp>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ostrakon::plan {
namespace {

/// What a stage computes for one micro-batch without a break.
struct Bar {
  Kind kind = Kind::forward;
  bool is_deferred = false;
  int micro_batch = -1;
  double begin = 0.0, end = 0.0;  ///< seconds
};

/// In the order of time, without those shorter than `least`.
std::vector<Bar> bars_of(const StepPlan& plan, const Timing& timing, double least) {
  std::vector<Bar> bars;
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const Action& action = plan.actions[a];
    const double begin = timing.begins[a], end = timing.ends[a];
    if (action.stream != Stream::compute || !(end > begin)) continue;
    const Kind kind = action.kind == Kind::recompute ? Kind::backward : action.kind;
    Bar next{kind, is_deferred(plan, action), action.micro_batch, begin, end};
    if (!bars.empty()) {
      Bar& last = bars.back();
      const bool is_same = last.kind == next.kind && last.is_deferred == next.is_deferred &&
                           last.micro_batch == next.micro_batch;
      if (is_same && begin - last.end <= least) {
        last.end = end;
        continue;
      }
      if (last.end - last.begin < least) bars.pop_back();
    }
    bars.push_back(next);
  }
  return bars;
}

/// When the device computes, in runs with breaks of at least `least` between them.
std::vector<Bar> computing_of(const StepPlan& plan, const Timing& timing, double least) {
  std::vector<Bar> runs;
  for (std::size_t a = 0; a < plan.actions.size(); ++a) {
    const double begin = timing.begins[a], end = timing.ends[a];
    if (plan.actions[a].stream != Stream::compute || !(end > begin)) continue;
    if (!runs.empty() && begin - runs.back().end < least)
      runs.back().end = end;
    else
      runs.push_back({Kind::release, false, -1, begin, end});
  }
  return runs;
}

constexpr double left = 110.0, right = 40.0, top = 74.0, lane_height = 30.0, lane_gap = 8.0,
                 plot_width = 1200.0;

class StagesPicture {
 public:
  StagesPicture(const std::vector<const StepPlan*>& stages, const std::vector<Timing>& timings)
      : stages_(stages), timings_(timings), seconds_(timings.front().seconds) {}

  Drawing draw(const std::string& title) const {
    double waiting = 0.0;
    for (const Timing& timing : timings_)
      waiting += 100.0 * timing.waiting / timing.seconds / static_cast<double>(timings_.size());
    std::string text = words(24, 34, "title ink", title);
    text +=
        words(24, 55, "small soft",
              print("%.4g s a step, of which stages wait %.1f %% for each other. Widths are "
                    "times; the numbers are micro-batches. Where a lane is empty the stage waits, "
                    "for others or for what it gathers, reduces or copies.",
                    seconds_, waiting));
    bool defers = false;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      text += lane(s);
      for (const Action& action : stages_[s]->actions)
        defers = defers || is_deferred(*stages_[s], action);
    }
    std::vector<std::pair<std::string, std::string>> colors = {{color(Kind::forward), "forward"},
                                                               {color(Kind::backward), "backward"}};
    if (defers) colors.emplace_back(color(Kind::reduce_scatter), "deferred gradients");
    colors.emplace_back(color(Kind::optimize), "the rest");
    colors.emplace_back(color(Kind::release), "too short to tell");
    text += axis() + legend("stages", left, height() - 22, colors);
    return {left + plot_width + right, height(), std::move(text)};
  }

 private:
  double height() const { return lanes_end() + 78.0; }
  double lanes_end() const {
    return top + static_cast<double>(stages_.size()) * (lane_height + lane_gap);
  }
  double x(double seconds) const { return left + plot_width * seconds / seconds_; }

  static const char* color_of(const Bar& bar) {
    if (bar.is_deferred) return color(Kind::reduce_scatter);
    const bool is_known = bar.kind == Kind::forward || bar.kind == Kind::backward;
    return color(is_known ? bar.kind : Kind::optimize);
  }

  std::string rectangle(const Bar& bar, double y, const char* fill) const {
    return print("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\"/>",
                 x(bar.begin), y, x(bar.end) - x(bar.begin), lane_height, fill);
  }

  std::string lane(std::size_t s) const {
    constexpr double least_pixels = 0.5, least_of_number = 9.0;
    const double y = top + static_cast<double>(s) * (lane_height + lane_gap);
    std::string text =
        words(left - 14, y + 0.5 * lane_height + 4, "small ink", print("stage %zu", s),
              "text-anchor=\"end\"") +
        print("<rect class=\"lane\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>\n", left,
              y, plot_width, lane_height);
    const double least = least_pixels * seconds_ / plot_width;
    // Below bars that are too short to be seen.
    for (const Bar& run : computing_of(*stages_[s], timings_[s], least))
      text += rectangle(run, y, color(Kind::release)) + "\n";
    for (const Bar& bar : bars_of(*stages_[s], timings_[s], least)) {
      const double width = x(bar.end) - x(bar.begin);
      text += "<g>" + rectangle(bar, y, color_of(bar));
      text += "<title>" + escape(bar_text(bar)) + "</title>";
      if (bar.micro_batch >= 0 && width >= least_of_number)
        text += words(0.5 * (x(bar.begin) + x(bar.end)), y + 0.5 * lane_height + 4, "bar",
                      std::to_string(bar.micro_batch), "text-anchor=\"middle\"");
      text += "</g>\n";
    }
    return text;
  }

  static std::string bar_text(const Bar& bar) {
    const char* const what = bar.is_deferred ? "deferred gradients" : name(bar.kind);
    return what + (bar.micro_batch >= 0 ? ", micro-batch " + std::to_string(bar.micro_batch) : "") +
           print(": %.4g to %.4g s", bar.begin, bar.end);
  }

  std::string axis() const {
    std::string text;
    constexpr int ticks = 5;
    for (int tick = 0; tick <= ticks; ++tick) {
      const double seconds = seconds_ * tick / ticks;
      text += words(x(seconds), lanes_end() + 16, "small soft", print("%.3g s", seconds),
                    "text-anchor=\"middle\"");
    }
    return text;
  }

  const std::vector<const StepPlan*>& stages_;
  const std::vector<Timing>& timings_;
  const double seconds_;
};

}  // namespace

Drawing draw_stages(const std::vector<const StepPlan*>& stages, const std::vector<Timing>& timings,
                    const std::string& title) {
  return StagesPicture(stages, timings).draw(title);
}

}  // namespace ostrakon::plan
