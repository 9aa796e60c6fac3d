// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/train/layout_candidates.hpp>
#include <set>
#include <string>
#include <vector>

namespace ostrakon::train {

struct ChooseRequest {
  RanksOn on;
  std::int64_t room_bytes = 0;  ///< of a rank's device, for its arena; 0: room_of(machine)
  std::set<std::string> kept;   ///< keys, "parallel.tensor", that stay as the deck says
  bool is_exhaustive = false;   ///< plans all settings, instead of searching
  std::size_t most = 4;         ///< settings that are listed
  int threads = 1;              ///< on which steps are planned; no choice depends on it
};

/// Settings and what they make of a step.
struct ChosenLayout {
  config::Settings settings;         ///< of the deck, but with what was chosen
  std::vector<std::string> changes;  ///< SECTION.KEY=VALUE of all that is not as in the deck
  simulate::Prediction prediction;
  std::int64_t arena_bytes = 0;       ///< of a run: training, validation, writing weights
  std::int64_t host_arena_bytes = 0;  ///< the same in host memory
};

struct ChosenLayouts {
  std::vector<ChosenLayout> best;     ///< the fastest, then others of other kinds
  std::int64_t room_bytes = 0;        ///< 0: any
  std::vector<std::string> left_out;  ///< what was not tried as it changes bits, and why
  std::int64_t bounded = 0, estimated = 0, planned = 0;  ///< as simulate::Choices
};

/// Bytes of a rank's device that its arena may take: a sixteenth of its memory is left for what it
/// holds besides, such as its context and the buffers of a library's collectives. 0: not known.
std::int64_t room_of(const simulate::Machine& machine);

/// The settings with which a step of the deck is fastest on a machine by simulation of its plan,
/// and fits. No bit of a result is changed by the choice: if the deck's own settings on these ranks
/// have the bits of 1 rank, or don't fit these ranks, so do all that are tried; else all that
/// decides the order of sums stays as it is. Memory of the host is used only if nothing fits
/// without. Memory is that of the deck's `processor`. The same arguments give the same choice.
/// Throws Error where no settings are possible or none fit, naming the smallest.
ChosenLayouts choose_layouts(const config::Settings& deck, const ChooseRequest& request);

/// What is worse in `slower` than in `than`, by the factors of the efficiency: "communication 0.81
/// instead of 0.93"; empty where none is worse by a hundredth.
std::string why_slower(const simulate::Prediction& slower, const simulate::Prediction& than);

}  // namespace ostrakon::train
