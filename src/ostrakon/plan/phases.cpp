// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/phases.hpp>

#include <ostrakon/base/error.hpp>
#include <string>
#include <utility>

namespace ostrakon::plan {
namespace {

void check_exchange(const Exchange& exchange, const Grid& grid, const std::string& which) {
  const Span& span = exchange.span;
  require(span.axis != Axis::micro_batch && span.axis != Axis::pipeline, which, " is along ",
          name(span.axis), ", expected an axis of ranks of a stage");
  require(span.ranks >= 1 && span.stride >= 1 &&
              grid.size(span.axis) % (std::int64_t{span.ranks} * span.stride) == 0,
          which, " is over ", span.ranks, " ranks, which do not divide the ", grid.size(span.axis),
          " along ", name(span.axis));
  require(span.axis != Axis::tensor || span.ranks == grid.tensor(), which, " is over ", span.ranks,
          " tensor ranks of ", grid.tensor(), "; expected all");
  require(exchange.elements > 0 && exchange.elements % span.ranks == 0, which, " is of ",
          exchange.elements, " elements, which are no equal parts for ", span.ranks, " ranks");
}

/// Exchanges what a phase has handed over. Returns the buffer that the next phase reads.
int append_exchange(Builder& builder, const Task& task, int phase, const Exchange& exchange,
                    int handed) {
  if (exchange.span.ranks == 1) return handed;
  const auto make = [&](const char* what, Category category, std::int64_t bytes) {
    return builder.make_buffer(what, task.unit, category, bytes);
  };
  // Sums are made in the order of ranks, whenever their parts arrive.
  const bool sums = exchange.kind == ExchangeKind::reduce_scatter;
  const int staging = sums ? make("staging", Category::staging, exchange.whole_bytes()) : -1;
  const int exchanged = make("exchanged", Category::activations, exchange.bytes_out());
  Action& action =
      builder.emit_collective(Kind::exchange, Stream::exchange, task.unit, exchange.span,
                              exchange.elements, exchange.element_bytes);
  action.micro_batch = task.micro_batch;
  action.phase = phase;
  action.exchange = exchange.kind;
  builder.use(action, Role::handed, handed, Access::read);
  builder.use(action, Role::staging, staging, Access::write);
  builder.use(action, Role::exchanged, exchanged, Access::write);
  if (sums)
    builder.release(task.unit, {handed, staging});
  else
    builder.release(task.unit, {handed});
  return exchanged;
}

}  // namespace

void check_phases(const ModelDescription& model, const Grid& grid) {
  for (const UnitDescription& unit : model.units)
    for (const auto& [phases, what] :
         {std::pair{&unit.forward, "forward"}, std::pair{&unit.backward, "backward"}}) {
      require(!phases->empty(), "unit ", unit.name, ": ", what, " has no phase");
      for (std::size_t p = 0; p < phases->size(); ++p) {
        const std::optional<Exchange>& then = (*phases)[p].then;
        const bool is_last = p + 1 == phases->size();
        const int again = (*phases)[p].reads_again;
        require(again < static_cast<int>(p) && (again < 0 || (*phases)[again].then), "unit ",
                unit.name, ": phase ", p, " of ", what, " reads again what comes after phase ",
                again, ", expected an exchange before it");
        require(!then || !is_last, "unit ", unit.name, ": phase ", p, " of ", what,
                " is the last, but an exchange follows");
        if (then)
          check_exchange(*then, grid,
                         text("unit ", unit.name, ": the exchange after phase ", p, " of ", what));
      }
    }
}

void append_phases(Builder& builder, const Task& task, Kind kind, const Phases& phases,
                   const char* workspace,
                   const std::function<void(Action&, int, PhasePosition)>& use) {
  const int all = static_cast<int>(phases.size());
  const int count = kind == Kind::recompute ? recomputed_phases(phases) : all;
  std::vector<int> exchanged(phases.size(), -1);  // after each
  for (int p = 0; p < count; ++p) {
    const Phase& phase = phases[p];
    const int works_in =
        builder.make_buffer(workspace, task.unit, Category::workspace, phase.workspace_bytes);
    const bool is_last = p + 1 == count;
    const int handed = phase.then && !is_last
                           ? builder.make_buffer("handed over", task.unit, Category::activations,
                                                 phase.then->bytes_in())
                           : -1;
    Action& action = builder.emit(kind, Stream::compute, task.unit, task.micro_batch);
    if (all > 1) action.phase = p;
    action.flops = kind == Kind::recompute ? phase.recompute_flops : phase.flops;
    use(action, works_in, {p == 0, is_last});
    if (p > 0) builder.use(action, Role::exchanged, exchanged[p - 1], Access::read);
    if (phase.reads_again >= 0)
      builder.use(action, Role::exchanged_before, exchanged[phase.reads_again], Access::read);
    builder.use(action, Role::handed, handed, Access::write);
    exchanged[p] =
        phase.then && !is_last ? append_exchange(builder, task, p, *phase.then, handed) : -1;
  }
}

}  // namespace ostrakon::plan
