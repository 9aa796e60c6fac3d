// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/picture.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/picture_style.hpp>
#include <ostrakon/plan/report.hpp>
#include <set>
#include <vector>

namespace ostrakon::plan {
namespace {

constexpr int most_actions_with_waits = 200;  // more lines can't be distinguished
constexpr double left = 110, right = 150, top = 78;
constexpr double gap_width = 44, memory_height = 320;

/// From the bottom: what stays from step to step, then what changes slowly, then what comes and
/// goes.
constexpr Category stack[categories] = {
    Category::parameters,  Category::optimizer, Category::other,   Category::gradients,
    Category::activations, Category::gathered,  Category::staging, Category::workspace};

/// Actions [begin, end) that are drawn one after the other.
struct Stretch {
  int begin, end;
};

/// Whether a micro-batch begins with an action: what was loaded comes to where it is computed.
bool brings_batch(const Action& action) {
  return action.kind == Kind::copy_to_device && action.unit < 0;
}

/// All actions, or of a long plan the micro-batches that show the most, together no more than
/// most_drawn_actions.
std::vector<Stretch> choose(const StepPlan& plan, int peak) {
  const int actions = static_cast<int>(plan.actions.size());
  if (actions <= most_drawn_actions) return {{0, actions}};
  std::vector<int> starts = {0};
  for (int a = 0, batches = 0; a < actions; ++a)
    if (brings_batch(plan.actions[a]) && batches++ > 0) starts.push_back(a);
  starts.push_back(actions);
  std::vector<Stretch> wanted;
  // The first, the last and that of the peak are wanted, and the peak itself.
  constexpr int most = most_drawn_actions / 4;
  const auto want = [&](int begin, int end) {
    if (end - begin > most) {
      wanted.push_back({begin, begin + most / 2});
      wanted.push_back({end - most / 2, end});
    } else {
      wanted.push_back({begin, end});
    }
  };
  want(starts[0], starts[1]);
  want(starts[starts.size() - 2], starts.back());
  const auto of_peak = std::upper_bound(starts.begin(), starts.end() - 1, peak);
  if (of_peak != starts.begin()) want(*(of_peak - 1), *of_peak);
  const bool shown = std::any_of(wanted.begin(), wanted.end(), [peak](const Stretch& stretch) {
    return stretch.begin <= peak && peak < stretch.end;
  });
  if (!shown && peak >= 0)
    wanted.push_back({std::max(0, peak - most / 2), std::min(actions, peak + most / 2)});
  std::sort(wanted.begin(), wanted.end(),
            [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  std::vector<Stretch> drawn;
  for (const Stretch& stretch : wanted)
    if (!drawn.empty() && stretch.begin <= drawn.back().end)
      drawn.back().end = std::max(drawn.back().end, stretch.end);
    else
      drawn.push_back(stretch);
  return drawn;
}

/// 1, 2 or 5 times a power of ten of a binary unit, so that a few of it make up `most`.
double tick_bytes(double most) {
  double unit = 1.0;
  while (unit * 1024.0 <= most) unit *= 1024.0;
  if (most / unit < 2.0 && unit > 1.0) unit /= 1024.0;
  for (double step = unit;; step *= 10.0)
    for (double factor : {1.0, 2.0, 5.0})
      if (most / (step * factor) <= 7.0) return step * factor;
}

class Picture {
 public:
  Picture(const StepPlan& plan, const MemoryPlan& memory)
      : plan_(plan),
        memory_(memory),
        live_(live_bytes(plan)),
        drawn_(choose(plan, memory.peak_action)) {
    int count = 0;
    for (const Stretch& stretch : drawn_) count += stretch.end - stretch.begin;
    find_lanes();
    const double gaps = gap_width * static_cast<double>(gaps_of(drawn_));
    slot_ = std::clamp((1400.0 - gaps) / count, 1.2, 26.0);
    shows_waits_ = count <= most_actions_with_waits;
    lane_gap_ = shows_waits_ ? 34.0 : 8.0;
    // Narrow bars are too small for text.
    lane_height_ = slot_ >= 11.0 ? 118.0 : 46.0;
    double x = left;
    int end = 0;
    for (const Stretch& stretch : drawn_) {
      if (stretch.begin > end) x += gap_width;
      begin_x_.push_back(x);
      x += slot_ * (stretch.end - stretch.begin);
      end = stretch.end;
    }
    end_x_ = x;
    width_ = std::max(end_x_ + right, 900.0);
    memory_top_ = lane_top(lanes()) + 52.0;
    memory_bottom_ = memory_top_ + memory_height;
    height_ = memory_bottom_ + 118.0;
    most_ = 1.06 * static_cast<double>(std::max<std::int64_t>(memory.arena_bytes, 1));
  }

  Drawing draw(const std::string& title) const {
    return {width_, height_,
            head(title) + draw_gaps() + draw_lanes() + draw_memory() + draw_peak() + legends()};
  }

 private:
  static int gaps_of(const std::vector<Stretch>& drawn) {
    int gaps = 0;
    int end = 0;
    for (const Stretch& stretch : drawn) {
      if (stretch.begin > end) ++gaps;
      end = stretch.end;
    }
    return gaps;
  }

  /// Streams in which nothing happens have no lane.
  void find_lanes() {
    std::array<bool, streams> used{};
    for (const Action& action : plan_.actions) used[static_cast<int>(action.stream)] = true;
    for (int s = 0; s < streams; ++s) {
      lane_of_[s] = lanes();
      if (used[s]) streams_.push_back(static_cast<Stream>(s));
    }
  }
  int lanes() const { return static_cast<int>(streams_.size()); }
  int lane_of(const Action& action) const { return lane_of_[static_cast<int>(action.stream)]; }

  double lane_top(int lane) const { return top + 20 + lane * (lane_height_ + lane_gap_); }
  double y(double bytes) const { return memory_bottom_ - bytes / most_ * memory_height; }

  std::string head(const std::string& title) const {
    std::string text = words(24, 34, "title ink", title);
    const std::string counts =
        format_count(static_cast<std::int64_t>(plan_.actions.size())) + " actions, " +
        format_count(plan_.grid.micro_batches()) +
        (plan_.grid.micro_batches() == 1 ? " micro-batch, " : " micro-batches, ") +
        format_bytes(plan_.bytes_sent()) + " sent, " + copied_text() + flops_text(plan_.flops()) +
        ". Actions stand in plan order, each as wide as every other: widths are not times." +
        (shows_waits_ ? " Lines are waits." : "");
    return text + words(24, 55, "small soft", counts);
  }

  std::string copied_text() const {
    const std::int64_t copied =
        copied_bytes(plan_, Kind::copy_to_device) + copied_bytes(plan_, Kind::copy_to_host);
    return copied > 0 ? format_bytes(copied) + " copied, " : "";
  }

  std::string draw_gaps() const {
    std::string text;
    int end = 0;
    for (std::size_t s = 0; s < drawn_.size(); ++s) {
      const int skipped = drawn_[s].begin - end;
      end = drawn_[s].end;
      if (skipped == 0) continue;
      const double x = begin_x_[s] - gap_width;
      text += print(
          "<rect class=\"gap\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"4\"/>\n",
          x + 4, top, gap_width - 8, memory_bottom_ - top);
      const double middle_x = x + 0.5 * gap_width + 4, middle_y = memory_bottom_ - 130;
      text += words(
          middle_x, middle_y, "small soft", format_count(skipped) + " actions are left out here",
          print("text-anchor=\"middle\" transform=\"rotate(-90 %.1f %.1f)\"", middle_x, middle_y));
    }
    return text;
  }

  std::string draw_lanes() const {
    std::string text;
    for (int lane = 0; lane < lanes(); ++lane) {
      const double lane_y = lane_top(lane);
      text += words(left - 14, lane_y + 0.5 * lane_height_ + 4, "small ink", name(streams_[lane]),
                    "text-anchor=\"end\"");
      for (std::size_t s = 0; s < drawn_.size(); ++s)
        text += print(
            "<rect class=\"lane\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "rx=\"3\"/>\n",
            begin_x_[s], lane_y, slot_ * (drawn_[s].end - drawn_[s].begin), lane_height_);
    }
    if (shows_waits_) text += draw_waits();
    for (std::size_t s = 0; s < drawn_.size(); ++s) {
      text += micro_batches(s);
      for (int a = drawn_[s].begin; a < drawn_[s].end; ++a)
        text += bar(a, begin_x_[s] + slot_ * (a - drawn_[s].begin));
    }
    return text;
  }

  /// Where micro-batches begin, over the lanes.
  std::string micro_batches(std::size_t s) const {
    std::string text;
    double free_from = 0.0;
    for (int a = drawn_[s].begin; a < drawn_[s].end; ++a) {
      const Action& action = plan_.actions[a];
      if (!brings_batch(action)) continue;
      const double x = begin_x_[s] + slot_ * (a - drawn_[s].begin);
      text += print("<path class=\"line\" d=\"M%.1f %.1fV%.1f\"/>\n", x, top + 4,
                    lane_top(lanes()) - lane_gap_);
      if (x < free_from) continue;
      text +=
          words(x + 3, top + 13, "tiny soft", "micro-batch " + std::to_string(action.micro_batch));
      free_from = x + 90.0;
    }
    return text;
  }

  /// From the end of each action that is waited for to the beginning of that which waits.
  std::string draw_waits() const {
    std::string text;
    for (int a = 0; a < static_cast<int>(plan_.actions.size()); ++a)
      for (int waited : plan_.actions[a].waits) {
        const int from = lane_of(plan_.actions[waited]), to = lane_of(plan_.actions[a]);
        const double x1 = left + slot_ * (waited + 1), x2 = left + slot_ * a;
        const double y1 = lane_top(from) + (from < to ? lane_height_ : 0.0);
        const double y2 = lane_top(to) + (from < to ? 0.0 : lane_height_);
        const double middle = 0.5 * (y1 + y2);
        text += print(
            "<path class=\"wait\" d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\"/>"
            "<circle class=\"soft\" cx=\"%.1f\" cy=\"%.1f\" r=\"1.8\"/>\n",
            x1, y1, x1, middle, x2, middle, x2, y2, x2, y2);
      }
    return text;
  }

  std::string bar(int a, double x) const {
    const Action& action = plan_.actions[a];
    const double lane_y = lane_top(lane_of(action));
    const double width = slot_ >= 5.0 ? slot_ - 1.0 : slot_;
    std::string text =
        "<g><title>" + std::to_string(a) + "  " + escape(describe_at(plan_, a)) + "\n";
    if (array_bytes(action) > 0)
      text += print("%s over %d ranks, messages of %s\n", format_bytes(array_bytes(action)).c_str(),
                    action.span.ranks, format_bytes(message_bytes(action)).c_str());
    if (copied_bytes(action) > 0) text += format_bytes(copied_bytes(action)) + " copied\n";
    if (action.flops > 0.0) text += flops_text(action.flops) + "\n";
    text += format_bytes(total(a)) + " live</title>";
    // A release is the end of something, no work.
    const bool works = action.kind != Kind::release;
    const double height = works ? lane_height_ - 4 : 10.0;
    text += print(
        "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" rx=\"%.0f\" fill=\"%s\"/>", x,
        lane_y + lane_height_ - 2 - height, width, height, slot_ >= 6.0 ? 2.0 : 0.0,
        color(action.kind));
    if (slot_ >= 11.0 && works) {
      const double text_x = x + 0.5 * width + 3.5, text_y = lane_y + lane_height_ - 8;
      std::string label = name(action.kind);
      if (action.unit >= 0) label += " " + plan_.units[action.unit].name;
      // Some five pixels a letter.
      const auto room = static_cast<std::size_t>((lane_height_ - 12) / 5.4);
      if (label.size() > room && action.unit >= 0) label = plan_.units[action.unit].name;
      if (label.size() > room) label.clear();
      if (!label.empty())
        text += print("<text class=\"bar\" transform=\"translate(%.1f %.1f) rotate(-90)\">", text_x,
                      text_y) +
                escape(label) + "</text>";
    }
    return text + "</g>\n";
  }

  std::int64_t total(int a) const {
    std::int64_t bytes = 0;
    for (std::int64_t category : live_[a]) bytes += category;
    return bytes;
  }

  std::string draw_memory() const {
    std::string text = words(left, memory_top_ - 32, "small ink", "live bytes of a rank");
    const double tick = tick_bytes(most_);
    for (double bytes = 0.0; bytes <= most_; bytes += tick) {
      text += print("<path class=\"line\" stroke-width=\"0.7\" d=\"M%.1f %.1fH%.1f\"/>\n", left,
                    y(bytes), end_x_);
      text += words(left - 10, y(bytes) + 4, "small soft",
                    format_bytes(static_cast<std::int64_t>(bytes)), "text-anchor=\"end\"");
    }
    for (std::size_t s = 0; s < drawn_.size(); ++s) {
      std::vector<double> base(static_cast<std::size_t>(drawn_[s].end - drawn_[s].begin), 0.0);
      for (Category category : stack) text += area(s, category, base);
    }
    text += level(memory_.persistent_bytes, "persistent", "stroke-dasharray=\"2 3\"");
    return text + level(memory_.arena_bytes, "arena", "stroke-dasharray=\"7 4\"");
  }

  /// One category's band over the bands below it, which end at `base`; moves `base` up.
  std::string area(std::size_t s, Category category, std::vector<double>& base) const {
    const int c = static_cast<int>(category);
    const Stretch stretch = drawn_[s];
    std::vector<double> roof(base);
    bool empty = true;
    for (int a = stretch.begin; a < stretch.end; ++a) {
      roof[a - stretch.begin] += static_cast<double>(live_[a][c]);
      empty = empty && live_[a][c] == 0;
    }
    if (empty) return "";
    const auto count = static_cast<int>(roof.size());
    std::string path = print("M%.2f %.2f", begin_x_[s], y(roof[0]));
    for (int i = 1; i < count; ++i)
      if (roof[i] != roof[i - 1]) path += print("H%.2fV%.2f", begin_x_[s] + slot_ * i, y(roof[i]));
    path += print("H%.2fV%.2f", begin_x_[s] + slot_ * count, y(base[count - 1]));
    for (int i = count - 1; i > 0; --i)
      if (base[i] != base[i - 1])
        path += print("H%.2fV%.2f", begin_x_[s] + slot_ * i, y(base[i - 1]));
    base = roof;
    return print("<path fill=\"%s\" fill-opacity=\"0.88\" d=\"", color(category)) + path +
           print("H%.2fZ\"><title>%s</title></path>\n", begin_x_[s], name(category));
  }

  std::string level(std::int64_t bytes, const char* what, const char* dashes) const {
    const double height = y(static_cast<double>(bytes));
    return print("<path class=\"strong\" fill=\"none\" %s d=\"M%.1f %.1fH%.1f\"/>\n", dashes, left,
                 height, end_x_ + 6) +
           words(end_x_ + 10, height + 4, "small ink",
                 std::string(what) + " " + format_bytes(bytes));
  }

  std::string draw_peak() const {
    const int peak = memory_.peak_action;
    for (std::size_t s = 0; s < drawn_.size(); ++s) {
      if (peak < drawn_[s].begin || peak >= drawn_[s].end) continue;
      const double x = begin_x_[s] + slot_ * (peak - drawn_[s].begin + 0.5);
      const double height = y(static_cast<double>(memory_.peak_live_bytes));
      const bool to_the_left = x > 0.5 * (left + end_x_);
      return print("<path class=\"strong\" stroke-width=\"0.8\" d=\"M%.1f %.1fV%.1f\"/>\n", x,
                   memory_top_ - 6, memory_bottom_) +
             print(
                 "<circle class=\"back strong\" stroke-width=\"1.5\" cx=\"%.1f\" cy=\"%.1f\" "
                 "r=\"4\"/>\n",
                 x, height) +
             words(x + (to_the_left ? -8 : 8), memory_top_ - 14, "small ink",
                   "peak " + format_bytes(memory_.peak_live_bytes) + " at " +
                       describe_at(plan_, peak),
                   to_the_left ? "text-anchor=\"end\"" : "");
    }
    return "";
  }

  std::string legends() const {
    std::set<Kind> used;
    for (const Action& action : plan_.actions) used.insert(action.kind);
    std::vector<std::pair<std::string, std::string>> of_kinds, of_categories;
    for (Kind kind : used) of_kinds.emplace_back(color(kind), name(kind));
    for (Category category : stack)
      for (const CategoryBytes& live : live_)
        if (live[static_cast<int>(category)] > 0) {
          of_categories.emplace_back(color(category), name(category));
          break;
        }
    return legend("actions", left, memory_bottom_ + 44, of_kinds) +
           legend("memory", left, memory_bottom_ + 78, of_categories);
  }

  const StepPlan& plan_;
  const MemoryPlan& memory_;
  const std::vector<CategoryBytes> live_;
  const std::vector<Stretch> drawn_;
  std::vector<Stream> streams_;         // of each lane
  std::array<int, streams> lane_of_{};  // of each stream
  std::vector<double> begin_x_;         // of each stretch
  double slot_ = 1.0, lane_height_ = 0.0, lane_gap_ = 0.0;
  bool shows_waits_ = false;
  double end_x_ = 0.0, width_ = 0.0, height_ = 0.0;
  double memory_top_ = 0.0, memory_bottom_ = 0.0, most_ = 1.0;
};

}  // namespace

Drawing draw_plan(const StepPlan& plan, const MemoryPlan& memory, const std::string& title) {
  return Picture(plan, memory).draw(title);
}

std::string picture_svg(const StepPlan& plan, const MemoryPlan& memory, const std::string& title) {
  return svg_image({draw_plan(plan, memory, title)});
}

}  // namespace ostrakon::plan
