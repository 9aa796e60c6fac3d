// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <ostrakon/runtime/program.hpp>
#include <string>
#include <vector>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/graph.hpp>
#endif

namespace ostrakon::runtime {

class ActionBuffers;

/// What an action's handler submits to the device depends on besides the action's kind, unit and
/// phase and the addresses of its buffers: a number that it passes to kernels, such as a loss
/// scale; 0: none. nullopt: on data, so that the handler has to be called.
using GraphInputs = std::optional<std::int64_t>;

/// What of a program is submitted as graphs in a run.
struct GraphCount {
  std::int64_t graphs = 0;   ///< that exist; actions with equal work at equal addresses share one
  std::int64_t actions = 0;  ///< that are submitted as a graph
  std::int64_t kernels = 0;  ///< in these actions
  std::string refused;       ///< why the device or a library did not allow an action as a graph, of
                             ///< the first of these; empty: it allowed all
};

/// Graphs of a device for actions whose handlers submit the same work in each run: such an action
/// takes one submission in place of one for each kernel. Work, its order and its results are those
/// of the handlers.
class Graphs {
 public:
  using InputsOf = std::function<GraphInputs(const ActionBuffers&)>;
  using Handler = std::function<void(const ActionBuffers&)>;

  /// The fewest kernels of an action that are submitted as a graph: below, a graph saves nothing.
  static constexpr std::int64_t least_kernels = 3;

#if OSTRAKON_HAS_DEVICE
  /// Prepares action `index` of a program, with its `buffers`: captures what `handler` submits,
  /// unless that depends on data, is little, or was captured for an action before. Nothing of it
  /// runs. Where the device refuses, the handler will be called, and count() says why.
  void capture(const Program& program, int index, const ActionBuffers& buffers,
               const Handler& handler, const InputsOf& inputs);
  /// Submits action `index` as a graph; returns false, and does nothing, if it has none or its
  /// handler would submit something else now.
  bool submit(const Program& program, int index, const ActionBuffers& buffers,
              const InputsOf& inputs) const;
  GraphCount count(const Program& program) const;

 private:
  /// A captured handler, and all that it depended on.
  struct Captured {
    std::int64_t inputs = 0;
    std::int64_t kernels = 0;
    device::Graph graph;
  };

  std::map<std::vector<std::int64_t>, Captured> captured_;
  std::string refused_;
  /// For each action of a program, by its id: what it was captured as, or null.
  std::map<std::uint64_t, std::vector<const Captured*>> of_program_;
#endif
};

}  // namespace ostrakon::runtime
