// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstdint>
#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/tune/layouts.hpp>
#include <set>
#include <string>
#include <vector>

// The tuner: which settings make a deck's step fast on some ranks of a machine, and fit in their
// memory. Nothing is run: each candidate's step is planned, as it would be before a run, and the
// plan is simulated on the machine.
//
// In reading order: space.hpp says what of a deck is varied. search.hpp goes through such a space,
// and knows nothing of decks. What it asks of a point, the time and memory of a step, layouts.hpp
// answers in three ways: bounds (step_bound.hpp, find_state), estimates by shorter steps, and all
// plans of a run (run_plans.hpp). Here these come together. choose_for_run does the same before
// a run whose deck asks for it.

namespace ostrakon::tune {

struct Request {
  MachineRanks on;
  Memory room;                 ///< most that a rank's arenas take; 0 of a device: room_of(machine);
                               ///< 0 of a host: any
  std::set<std::string> kept;  ///< keys, "parallel.tensor", that stay as the deck says
  bool any_precision = false;  ///< Freedom::any_precision
  bool is_exhaustive = false;  ///< plans all settings, instead of searching
  std::size_t most = 4;        ///< settings that are listed
  int threads = 1;             ///< on which steps are planned; no choice depends on it
};

/// Settings and what they make of a step.
struct Chosen {
  config::Settings settings;         ///< of the deck, but with what was chosen
  std::vector<std::string> changes;  ///< SECTION.KEY=VALUE of all that is not as in the deck
  simulate::Prediction prediction;
  Memory arenas;                  ///< of a run: training, validation, writing weights
  bool bits_of_one_rank = false;  ///< whether sums are bitwise equal to 1 rank
  bool fits = true;
};

struct Result {
  std::vector<Chosen> best;           ///< the fastest, then others of other kinds
  std::optional<Chosen> deck;         ///< the deck as it stands; none where that is not possible
  std::string why_not_deck;           ///< why it is not
  Memory room;                        ///< any_bytes: any
  std::vector<std::string> left_out;  ///< what was not tried as it changes bits, and why
  std::int64_t bounded = 0, estimated = 0, planned = 0;  ///< as SearchResult
};

/// Bytes of a rank's device that its arena may take: a sixteenth of its memory is left for what it
/// holds besides, such as its context and the buffers of a library's collectives. 0: not known.
std::int64_t room_of(const simulate::Machine& machine);

/// The settings with which a step of the deck is fastest on a machine by simulation of its plan,
/// and fits. Without `any_precision` no bit of a result is changed by the choice: if the deck's own
/// settings on these ranks have the bits of 1 rank, or don't fit these ranks, so do all that are
/// tried; else all that decides the order of sums stays as it is. Memory of the host is used only
/// if nothing fits without, and never where ranks compute on the host. Memory is that of the deck's
/// `processor`, nodes are those of the request. The same arguments give the same choice. Throws
/// Error where no settings are possible or none fit, naming the smallest.
Result choose(const config::Settings& deck, const Request& request);

/// What is worse in `slower` than in `than`, by the factors of the efficiency: "communication 0.81
/// instead of 0.93"; empty where none is worse by a hundredth.
std::string why_slower(const simulate::Prediction& slower, const simulate::Prediction& than);

/// The settings of a run with what parallel.choose says chosen for its ranks, and without
/// parallel.choose; where it is empty, as choose_recompute_for_run. Rank 0 chooses, and prints what
/// it chose and expects. Collective over `parent`. Throws CollectiveError where the machine file
/// can't be read, or as choose.
config::Settings choose_for_run(config::Settings settings, MPI_Comm parent);

}  // namespace ostrakon::tune
