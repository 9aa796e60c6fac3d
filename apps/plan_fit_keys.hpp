// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/settings.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps::fit {

using config::Assignment;
using config::Choice;
using config::Choices;
using config::set;
using config::Varied;

inline constexpr Varied sharding{"parallel", "sharding"};
inline constexpr Varied shard_group{"parallel", "shard_group"};
inline constexpr Varied reshard_after_forward{"parallel", "reshard_after_forward"};
inline constexpr Varied accumulation{"parallel", "accumulation"};
inline constexpr Varied forward_prefetch{"parallel", "forward_prefetch"};
inline constexpr Varied backward_prefetch{"parallel", "backward_prefetch"};
inline constexpr Varied in_flight_gathers{"parallel", "in_flight_gathers"};
inline constexpr Varied in_flight_reductions{"parallel", "in_flight_reductions"};
inline constexpr Varied gather{"precision", "gather"};
inline constexpr Varied activations{"precision", "activations"};
inline constexpr Varied reduce{"precision", "reduce"};
inline constexpr Varied checkpointing{"memory", "activation_checkpointing"};
inline constexpr Varied offload{"memory", "offload"};
inline constexpr Varied saved_in{"memory", "activations"};
inline constexpr Varied micro_batch_size{"training", "micro_batch_size"};
inline constexpr Varied varied[] = {sharding,
                                    shard_group,
                                    reshard_after_forward,
                                    accumulation,
                                    forward_prefetch,
                                    backward_prefetch,
                                    in_flight_gathers,
                                    in_flight_reductions,
                                    gather,
                                    activations,
                                    reduce,
                                    checkpointing,
                                    offload,
                                    saved_in,
                                    micro_batch_size};

/// The values of all keys that are varied, a line each: the same text means the same settings.
std::string written(const config::Settings& settings);

}  // namespace ostrakon::apps::fit
