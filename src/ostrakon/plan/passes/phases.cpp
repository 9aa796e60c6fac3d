// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/phases.hpp>

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
  require(span.axis != Axis::tensor_shard ||
              (span.stride == 1 && span.ranks % grid.tensor() == 0 && !grid.shard_first),
          which, " is over ", span.ranks,
          " ranks, tensor ranks among them; expected a multiple of ", "the ", grid.tensor(),
          " tensor ranks, which are neighbours");
  require(exchange.elements > 0 && exchange.elements % span.ranks == 0, which, " is of ",
          exchange.elements, " elements, which are no equal parts for ", span.ranks, " ranks");
}

/// Checks deferred phases: they read nothing of the phases before them but `saved` and `deferred`,
/// and add to no gradients that another unit's backward opens.
void check_deferred(const UnitDescription& unit, bool has_loss) {
  const auto phases = static_cast<int>(unit.backward.size());
  require(unit.deferral.phases >= 0 && unit.deferral.phases < phases, "unit ", unit.name,
          " defers ", unit.deferral.phases, " of its ", phases, " phases of backward; expected ",
          "less than all");
  if (unit.deferral.phases == 0) return;
  require(!has_loss, "unit ", unit.name,
          " computes the loss and defers phases of backward; expected ", "none of the last unit");
  require(unit.tied_to < 0, "unit ", unit.name, " is tied to another unit and defers phases of ",
          "backward; expected none");
  require(!unit.deferral.backward_at_once.empty(), "unit ", unit.name,
          " defers phases of backward, and has ", "none where it does not defer them");
  const int first = unit.first_gradient_phase();
  require(!unit.backward[first - 1].keeps_workspace, "unit ", unit.name, ": phase ", first - 1,
          " of backward keeps its workspace for a phase that is deferred");
  for (int p = first; p < phases; ++p)
    for (const int read : unit.backward[p].reads)
      require(read >= first, "unit ", unit.name, ": phase ", p,
              " of backward, which is deferred, reads the exchange of phase ", read,
              ", which is not");
}

/// Buffers of an exchange: the send buffer, and the result.
struct Exchanged {
  int handed = -1;
  int staging = -1;
  int buffer = -1;  // result that phases read
};

/// Exchanges the send buffer of a phase.
Exchanged append_exchange(Builder& builder, const Task& task, int phase, const Exchange& exchange,
                          int handed) {
  if (exchange.span.ranks == 1) return {-1, -1, handed};
  const auto make = [&](const char* what, Category category, std::int64_t bytes) {
    return builder.make_buffer(what, task.unit, category, bytes);
  };
  // Sums are made in the order of ranks, whichever part arrives first, so parts need staging.
  const bool has_staging = exchange.kind == ExchangeKind::reduce_scatter &&
                           !builder.plan().grid.has_window(exchange.span);
  const int staging = has_staging ? make("staging", Category::staging, exchange.whole_bytes()) : -1;
  const int exchanged = make("exchanged", Category::activations, exchange.bytes_out());
  Action& action = builder.emit_collective(Kind::exchange, task.unit, exchange.span,
                                           exchange.elements, exchange.element_bytes);
  action.micro_batch = task.micro_batch;
  action.phase = phase;
  action.exchange = exchange.kind;
  action.may_be_empty = exchange.may_be_empty;
  action.empty_if_even = exchange.empty_if_even;
  builder.use(action, Role::send_buffer, handed, Access::read);
  builder.use(action, Role::staging, staging, Access::write);
  builder.use(action, Role::recv_buffer, exchanged, Access::write);
  return {handed, staging, exchanged};
}

/// Makes compute wait for an exchange.
void finish_exchange(Builder& builder, const Task& task, const Exchanged& exchanged) {
  std::vector<int> over;
  for (const int buffer : {exchanged.handed, exchanged.staging})
    if (buffer >= 0) over.push_back(buffer);
  if (!over.empty()) builder.release(task.unit, over);
}

}  // namespace

void check_phases(const ModelDescription& model, const Grid& grid) {
  for (int u = 0; u < static_cast<int>(model.units.size()); ++u) {
    const UnitDescription& unit = model.units[u];
    for (const auto& [phases, what] :
         {std::pair{&unit.forward, "forward"}, std::pair{&unit.backward, "backward"},
          std::pair{&unit.deferral.backward_at_once, "backward at once"}}) {
      if (phases == &unit.deferral.backward_at_once && phases->empty()) continue;
      check_reads(*phases, unit.name, what);
      for (std::size_t p = 0; p < phases->size(); ++p)
        if (const std::optional<Exchange>& then = (*phases)[p].then)
          check_exchange(*then, grid,
                         text("unit ", unit.name, ": the exchange after phase ", p, " of ", what));
    }
    check_deferred(unit, computes_loss(model, u));
  }
}

void append_phases(Builder& builder, const Task& task, Kind kind, const Phases& phases,
                   const std::vector<int>& computed, const char* workspace,
                   const std::function<void(Action&, Workspace, PhasePosition)>& use) {
  std::vector<Exchanged> exchanged(phases.size());  // exchange after each phase
  Workspace works_in;
  bool output_begun = false;
  for (const int p : computed) {
    const Phase& phase = phases[p];
    for (const int read : phase.reads)
      if (first_reader(phases, read, computed) == p)
        finish_exchange(builder, task, exchanged[read]);
    const bool is_first = p == computed.front();
    if (!is_first && phases[p - 1].keeps_workspace)
      works_in.access = Access::read_write;
    else
      works_in = {builder.make_buffer(workspace, task.unit, Category::workspace,
                                      workspace_bytes(phases, p)),
                  Access::write};
    const bool is_read = phase.then && first_reader(phases, p, computed) >= 0;
    const int handed = is_read ? builder.make_buffer("handed over", task.unit,
                                                     Category::activations, phase.then->bytes_in())
                               : -1;
    Action& action = builder.emit(kind, task.unit, task.micro_batch);
    if (phases.size() > 1) action.phase = p;
    builder.use(action, Role::product_workspace, builder.plan().product_workspace, Access::write);
    const bool recomputes = kind == Kind::recompute;
    action.flops = recomputes ? phase.recompute_flops : phase.flops;
    action.work = recomputes ? phase.recompute_work : phase.work;
    const bool is_last = p == computed.back(), writes_output = is_last || phase.writes_output;
    use(action, works_in, {is_first, is_last, writes_output, output_begun});
    output_begun = output_begun || writes_output;
    for (std::size_t r = 0; r < phase.reads.size(); ++r)
      builder.use(action, recv_roles[r], exchanged[phase.reads[r]].buffer, Access::read);
    builder.use(action, Role::send_buffer, handed, Access::write);
    if (is_read) exchanged[p] = append_exchange(builder, task, p, *phase.then, handed);
  }
}

}  // namespace ostrakon::plan
