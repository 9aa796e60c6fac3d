// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/report/report_json.hpp>

#include <ostrakon/plan/report/json_row.hpp>

namespace ostrakon::plan {
namespace {

/// Actions that take time.
std::vector<int> timed_actions(const StepPlan& plan, const Timing& timing) {
  std::vector<int> actions;
  for (std::size_t a = 0; a < plan.actions.size(); ++a)
    if (timing.ends[a] > timing.begins[a]) actions.push_back(static_cast<int>(a));
  return actions;
}

std::string action_line(const StepPlan& plan, const Timing& timing, int a) {
  const auto at = static_cast<std::size_t>(a);
  const Action& action = plan.actions[at];
  return JsonRow()
      .put("action", std::int64_t{a})
      .put("kind", name(action.kind))
      .put("stream", name(action.stream))
      .put_or_null("unit", action.unit >= 0,
                   action.unit < 0 ? std::string() : plan.units[action.unit].name)
      .put_or_null("micro_batch", action.micro_batch >= 0, std::int64_t{action.micro_batch})
      .put("deferred", is_deferred(plan, action))
      .put("begin", timing.begins[at])
      .put("end", timing.ends[at])
      .end();
}

/// When a buffer is live.
struct Life {
  const Buffer* buffer;
  double begin, end;
};

std::vector<Life> lives(const StepPlan& plan, const Timing& timing) {
  std::vector<Life> all;
  for (const Buffer& buffer : plan.buffers) {
    if (buffer.space != Space::device || (!buffer.persistent && buffer.first < 0)) continue;
    Life life{&buffer, 0.0, timing.seconds};
    if (!buffer.persistent) {
      life.begin = timing.begins[static_cast<std::size_t>(buffer.first)];
      life.end = timing.ends[static_cast<std::size_t>(buffer.last)];
    }
    if (life.end > life.begin) all.push_back(life);
  }
  return all;
}

}  // namespace

void write_timelines(std::ostream& out, const TimedStages& timed) {
  out << ",\n  \"timelines\": [";
  for (std::size_t s = 0; s < timed.plans.size(); ++s) {
    const StepPlan& plan = *timed.plans[s];
    const Timing& timing = timed.timings[s];
    out << (s == 0 ? "\n  {" : ",\n  {") << "\n  \"stage\": " << s
        << ",\n  \"seconds\": " << nlohmann::json(timing.seconds)
        << ",\n  \"waiting_seconds\": " << nlohmann::json(timing.waiting);
    const std::vector<int> actions = timed_actions(plan, timing);
    write_list(out, "actions", actions.size(),
               [&](std::size_t i) { return action_line(plan, timing, actions[i]); });
    const std::vector<Life> live = lives(plan, timing);
    write_list(out, "buffers", live.size(), [&](std::size_t i) {
      return JsonRow()
          .put("category", category_key(live[i].buffer->category))
          .put("bytes", live[i].buffer->bytes)
          .put("begin", live[i].begin)
          .put("end", live[i].end)
          .end();
    });
    out << "\n  }";
  }
  out << "\n  ]";
}

}  // namespace ostrakon::plan
