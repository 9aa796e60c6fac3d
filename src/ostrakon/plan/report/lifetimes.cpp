// SPDX-License-Identifier: Apache-2.0
#include "lifetimes.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/plan/report/json_row.hpp>
#include <ostrakon/plan/report/report.hpp>

namespace ostrakon::plan {
namespace {

/// Keys of a deck that make buffers of a category smaller, fewer or shorter-lived.
constexpr std::array<const char*, categories> settings_of = {
    "parallel.sharding, parallel.shard_group, memory.offload",
    "parallel.sharding, parallel.shard_optimizer_over, optimizer.moments, training.ema, "
    "memory.offload",
    "parallel.reshard_after_forward, parallel.in_flight_gathers, parallel.forward_prefetch, "
    "parallel.backward_prefetch, precision.gather",
    "parallel.accumulation, parallel.in_flight_reductions, parallel.sharding",
    "memory.activation_checkpointing, memory.activations, training.micro_batch_size, "
    "precision.gather",
    "training.micro_batch_size, parallel.tensor",
    "parallel.in_flight_reductions, precision.reduce",
    ""};

/// Such keys for buffers with codes of gathered parameters.
constexpr const char* settings_of_codes =
    "precision.gather, parallel.forward_prefetch, parallel.backward_prefetch, "
    "parallel.in_flight_gathers";

const Use* find_use(const Action& action, int buffer) {
  for (const Use& use : action.uses)
    if (use.buffer == buffer && use.role != Role::released) return &use;
  return nullptr;
}

const MemoryPlan& memory_of(const Buffer& buffer, const MemoryPlan& memory,
                            const MemoryPlan& host_memory) {
  return buffer.space == Space::device ? memory : host_memory;
}

Lifetime lifetime_of(const StepPlan& plan, int index, const MemoryPlan& memory) {
  const Buffer& buffer = plan.buffers[index];
  const int peak = memory.peak_action;
  Lifetime life;
  life.buffer = index;
  life.offset = memory.offsets[index];
  life.at_peak = peak >= 0 && (buffer.persistent || (buffer.first <= peak && peak <= buffer.last));
  if (buffer.first < 0) return life;
  for (int a = buffer.first; a <= buffer.last; ++a) {
    if (find_use(plan.actions[a], index) == nullptr) continue;
    life.last_use = a;
    if (life.at_peak && life.needed_by < 0 && a >= peak) life.needed_by = a;
  }
  if (!buffer.persistent) life.ended_by = buffer.last;
  return life;
}

std::string use_text(const StepPlan& plan, int action, int buffer) {
  const Use& use = *find_use(plan.actions[action], buffer);
  constexpr const char* verbs[] = {"reads", "writes", "reads and writes"};
  return text(describe_at(plan, action), ", which ", verbs[static_cast<int>(use.access)], " it as ",
              name(use.role));
}

std::string entry(const char* what, const std::string& value) {
  return print("  %-12s", what) + value + "\n";
}

std::string peak_text(const StepPlan& plan, const Lifetime& life) {
  if (!life.at_peak) return "not live";
  if (life.needed_by >= 0) return "needed by " + use_text(plan, life.needed_by, life.buffer);
  if (life.ended_by < 0) return "kept for the next step";
  return "no longer used, but its bytes are free only after " +
         plan.describe(plan.actions[life.ended_by]);
}

std::string end_text(const StepPlan& plan, const Lifetime& life) {
  const std::string end = "after " + use_text(plan, life.last_use, life.buffer);
  const Stream stream = plan.actions[life.last_use].stream;
  // A buffer ends on the compute stream, which may have to wait for its last use.
  if (stream == plan.actions[life.ended_by].stream) return end;
  return text(end, " on the ", name(stream), " stream; ", describe_at(plan, life.ended_by),
              " waits for that");
}

std::string lifetime_text(const StepPlan& plan, const Lifetime& life) {
  const Buffer& buffer = plan.buffers[life.buffer];
  const char* const settings = buffer.quantized
                                   ? settings_of_codes
                                   : settings_of.at(static_cast<std::size_t>(buffer.category));
  std::string text = print("%s  %s  %s, in %s memory at byte %s\n", buffer.name.c_str(),
                           format_bytes(buffer.bytes).c_str(), name(buffer.category),
                           name(buffer.space), format_count(life.offset).c_str());
  if (buffer.persistent) {
    text += entry("live", "in all steps");
  } else {
    text += entry("live from", describe_at(plan, buffer.first));
    text += entry("freed", end_text(plan, life));
  }
  text += entry("at the peak", peak_text(plan, life));
  if (*settings != '\0') text += entry("settings", settings);
  return text;
}

}  // namespace

std::vector<Lifetime> find_lifetimes(const StepPlan& plan, const MemoryPlan& memory,
                                     const MemoryPlan& host_memory, const std::string& pattern) {
  std::vector<Lifetime> found;
  const bool at_peak = pattern == "peak";
  for (int b = 0; b < static_cast<int>(plan.buffers.size()); ++b) {
    const Buffer& buffer = plan.buffers[b];
    if (!buffer.persistent && buffer.first < 0) continue;  // Nothing uses it.
    if (!at_peak && buffer.name.find(pattern) == std::string::npos) continue;
    const Lifetime life = lifetime_of(plan, b, memory_of(buffer, memory, host_memory));
    if (life.at_peak || !at_peak) found.push_back(life);
  }
  require(!found.empty(), "no buffer of the plan has a name with ", shown(pattern),
          "; expected a part of a name such as \"", plan.buffers.front().name,
          "\", or peak; --json lists all");
  std::stable_sort(found.begin(), found.end(), [&](const Lifetime& one, const Lifetime& other) {
    return plan.buffers[one.buffer].bytes > plan.buffers[other.buffer].bytes;
  });
  return found;
}

std::string lifetimes_text(const StepPlan& plan, const MemoryPlan& memory,
                           const MemoryPlan& host_memory, const std::vector<Lifetime>& lifetimes,
                           std::size_t most) {
  std::string text;
  for (const MemoryPlan* const one : {&memory, &host_memory})
    if (one->peak_action >= 0)
      text += print("peak in %s memory: %s at %s\n", name(one->space),
                    format_bytes(one->peak_live_bytes).c_str(),
                    describe_at(plan, one->peak_action).c_str());
  std::int64_t left = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    if (i < most)
      text += "\n" + lifetime_text(plan, lifetimes[i]);
    else
      left += plan.buffers[lifetimes[i].buffer].bytes;
  }
  if (lifetimes.size() > most)
    text += print("\nand %zu smaller ones of %s\n", lifetimes.size() - most,
                  format_bytes(left).c_str());
  return text;
}

nlohmann::ordered_json lifetimes_json(const StepPlan& plan,
                                      const std::vector<Lifetime>& lifetimes) {
  const auto action = [&](int index) {
    return index < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(describe_at(plan, index));
  };
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Lifetime& life : lifetimes) {
    const Buffer& buffer = plan.buffers[life.buffer];
    all.push_back({{"name", buffer.name},
                   {"index", life.buffer},
                   {"bytes", buffer.bytes},
                   {"category", category_key(buffer.category)},
                   {"space", name(buffer.space)},
                   {"offset", life.offset},
                   {"persistent", buffer.persistent},
                   {"first_action", action(buffer.first)},
                   {"last_use", action(life.last_use)},
                   {"free_after", action(life.ended_by)},
                   {"at_peak", life.at_peak},
                   {"needed_at_peak_by", action(life.needed_by)}});
  }
  return all;
}

}  // namespace ostrakon::plan
