// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/experts/expert_rows.hpp>
#include <ostrakon/math/rows/activation.hpp>
#include <ostrakon/model/expert_buffers.hpp>
#include <vector>

namespace ostrakon::model {

using math::Transpose;

template <class T>
class ExpertUnit<T>::Phase {
 public:
  Phase(const ExpertUnit& unit, const Exec& exec, const UnitBuffers<T>& buffers, Pass pass)
      : u_(unit),
        exec_(exec),
        buffers_(buffers),
        pass_(pass),
        work_(unit, pass, buffers.workspace),
        y_(from_y(buffers.input)),
        dy_(from_y(buffers.gradient)),
        handed_(unit.dispatch_.template rows_in<T>(behind_y(to_read(y_)))) {}

  void run();

 private:
  using Offsets = HostView<const std::int64_t*>;
  using RoundRows = math::ExpertRounds::Rows;

  /// Rows of a round that have come from rank `from` to the experts of this one.
  struct Arrived {
    std::int64_t from, round;
    Offsets runs;
    RoundRows rows;  // slots of `from`
    Sent sent;
    Returned back;
  };

  void send(std::int64_t round);
  void compute(std::int64_t round);
  void put(std::int64_t round);
  void finish();
  void take_gradients();

  bool any_rows(std::int64_t round);
  void activate(const Arrived& arrived);
  void multiply(const Arrived& arrived);
  void multiply_back(const Arrived& arrived);
  void add_gradients(const Arrived& arrived, View<const T**> dup);
  bool add_run(const Arrived& arrived, std::int64_t first, std::int64_t last, View<const T**> dup,
               View<Compute*> sums);
  void sum_ranks();

  /// Without what is passed on in front of y, or of its gradient.
  template <class A>
  View<A*> from_y(View<A*> buffer) const {
    return buffer ? buffer.range(u_.passed_, buffer.size()) : buffer;
  }
  /// What follows y, or its gradient.
  View<std::byte*> behind_y(View<T*> buffer) const {
    const auto bytes = view_as<std::byte>(buffer);
    return bytes.range(u_.dispatch_.template behind_y<T>(), bytes.size());
  }
  /// What rank `rank` has in a buffer with as much for each: what it sent, or what comes back.
  template <class What>
  What part_of(View<std::byte*> buffer, std::int64_t rank) const {
    const std::int64_t bytes = padded<T>(What(u_, pass_, {}).bytes);
    return {u_, pass_, buffer.range(rank * bytes, (rank + 1) * bytes)};
  }

  /// The first run of the experts of rank `to`. Flat parameters are divided over tensor ranks
  /// first: so are the equal parts of the experts over the ranks of the exchange.
  std::int64_t first_run(std::int64_t to) const {
    const std::int64_t tensor = u_.tensor_ranks_;
    const std::int64_t part = to % tensor * (u_.ranks_ / tensor) + to / tensor;
    return part * u_.own_ * u_.dispatch_.leaves;
  }
  /// The first row of each run that `from` sends to the experts of `to`, and the end of the last:
  /// slots of `from`.
  Offsets runs(std::int64_t from, std::int64_t to) const {
    const std::int64_t first = from * u_.dispatch_.offsets() + first_run(to);
    return offsets_->view().range(first, first + u_.own_ * u_.dispatch_.leaves + 1);
  }
  RoundRows rows_of(std::int64_t from, std::int64_t to, std::int64_t round) const {
    return u_.rounds_.rows_of(runs(from, to), round);
  }

  /// An array of one of this rank's experts, and the gradient of one among those of an expert.
  View<const T*> array(const Location& at, std::int64_t expert) const {
    if (at.elements == 0) return {};
    const std::int64_t stride = at.trained ? u_.trained_elements_ : u_.frozen_elements_;
    const std::int64_t first = expert * stride + at.offset;
    return (at.trained ? buffers_.parameters : buffers_.frozen).range(first, first + at.elements);
  }
  View<const T**> weight(const Layer& layer, std::int64_t expert) const {
    return array(layer.weight, expert).matrix(layer.outputs, layer.inputs);
  }
  static View<Compute*> gradient_in(View<Compute*> gradients, const Location& at) {
    return gradients.range(at.offset, at.offset + at.elements);
  }
  /// The gradients of one of this rank's experts by the rows of rank `from`.
  View<Compute*> gradients_of(std::int64_t from, std::int64_t expert) const {
    const std::int64_t index = from == 0 ? expert : (from - 1) * u_.own_ + expert;
    return (from == 0 ? buffers_.parameter_gradients : work_.gradients)
        .range(index * u_.trained_elements_, (index + 1) * u_.trained_elements_);
  }
  void add_up(View<Compute*> from, View<Compute*> to) const {
    for (const Location& one : u_.trained_)
      math::add_to<Compute>(exec_, View<const Compute*>(gradient_in(from, one)),
                            gradient_in(to, one));
  }

  /// f(expert, its rows [begin, end) of those that have arrived) for each that has any.
  template <class Function>
  void for_each_expert(const Arrived& arrived, const Function& f) const {
    const RoundRows rows = arrived.rows;
    for (std::int64_t e = 0; e < u_.own_; ++e) {
      const std::int64_t begin = std::max(rows.begin, arrived.runs[e * u_.dispatch_.leaves]);
      const std::int64_t end = std::min(rows.end, arrived.runs[(e + 1) * u_.dispatch_.leaves]);
      if (begin < end) f(e, begin - rows.begin, end - rows.begin);
    }
  }
  /// y = x W^T + b by each expert, of its rows: no row's bits depend on how many they are.
  void multiply_rows(const Arrived& arrived, const Layer& layer, View<const T**> x, View<T**> y) {
    for_each_expert(arrived, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
      const View<T**> own = y.row_range(begin, end);
      math::gemm_by_row<T>(exec_, Transpose::yes, x.row_range(begin, end), weight(layer, e), own,
                           work_.padding);
      if (const auto bias = array(layer.bias, e)) math::add_bias<T>(exec_, own, bias);
    });
  }

  const ExpertUnit& u_;
  const Exec& exec_;
  const UnitBuffers<T>& buffers_;
  Pass pass_;
  Workspace work_;
  View<const T*> y_;
  View<T*> dy_;  // of backward
  MoeDispatchLayout::Rows<T> handed_;
  std::optional<math::OffsetsOnHost> offsets_;  // of all ranks
};

template <class T>
void ExpertUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  Phase(*this, exec, buffers, Pass::forward).run();
}

template <class T>
void ExpertUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                             compute_t<T> /*loss_scale*/, bool /*adds_gradients*/) const {
  Phase(*this, exec, buffers, Pass::backward).run();
}

template <class T>
void ExpertUnit<T>::Phase::run() {
  if (buffers_.phase == 0 && work_.dmade) take_gradients();
  if (buffers_.phase == 0)
    return math::copy<std::int64_t>(exec_, View<const std::int64_t*>(handed_.routes.offsets),
                                    view_as<std::int64_t>(buffers_.send_buffer));
  if (buffers_.phase == 1)
    math::copy<std::int64_t>(exec_, view_as<std::int64_t>(buffers_.recv_buffer), work_.offsets);
  offsets_.emplace(exec_, work_.offsets, first_run(buffers_.expert_rank), u_.ranks_);
  const std::int64_t round = buffers_.phase / 2 - 1;  // that it computes, or has computed before
  if (buffers_.phase % 2 == 0) return compute(round);
  if (round >= 0) put(round);
  if (round + 1 < u_.description_.capacity.most_rounds) return send(round + 1);
  finish();
}

/// Whether any rank sends rows to any other in a round. In the first some always do.
template <class T>
bool ExpertUnit<T>::Phase::any_rows(std::int64_t round) {
  bool any = false;
  for (std::int64_t from = 0; from < u_.ranks_ && !any; ++from)
    for (std::int64_t to = 0; to < u_.ranks_ && !any; ++to)
      any = u_.rounds_.has_rows(runs(from, to), round);
  if (buffers_.exchange_is_empty != nullptr) *buffers_.exchange_is_empty = !any;
  return any;
}

/// Fills the send buffer with the rows of a round, for the ranks that have their experts.
template <class T>
void ExpertUnit<T>::Phase::send(std::int64_t round) {
  if (!any_rows(round)) return;
  if (pass_ == Pass::forward && buffers_.counts)
    math::count_one(exec_, buffers_.counts.range(round, round + 1));
  for (std::int64_t to = 0; to < u_.ranks_; ++to) {
    const RoundRows rows = rows_of(buffers_.expert_rank, to, round);
    if (rows.count() == 0) continue;
    const Sent sent = part_of<Sent>(buffers_.send_buffer, to);
    const auto assignments = handed_.routes.assignments.range(rows.begin, rows.end);
    const auto gather = [&](View<const T**> from, View<T**> into) {
      math::gather_rows_of<T>(exec_, u_.dispatch_.router.per_token, from, assignments,
                              into.row_range(0, rows.count()));
    };
    gather(handed_.normed, sent.x);
    if (pass_ == Pass::forward) continue;
    gather(work_.dmade ? work_.dmade : dy_.matrix(u_.dispatch_.rows, u_.dispatch_.width), sent.dy);
    math::gather_weights<Compute>(exec_, handed_.routes.weights, assignments,
                                  sent.weights.range(0, rows.count()));
  }
}

/// Copies the rows that came back to the slots from which they were sent.
template <class T>
void ExpertUnit<T>::Phase::put(std::int64_t round) {
  for (std::int64_t from = 0; from < u_.ranks_; ++from) {
    const RoundRows rows = rows_of(buffers_.expert_rank, from, round);
    if (rows.count() == 0) continue;
    const Returned back = part_of<Returned>(to_read(buffers_.recv_buffer), from);
    math::copy<T>(exec_, View<const T*>(back.rows.row_range(0, rows.count()).flat()),
                  work_.returned.row_range(rows.begin, rows.end).flat());
    if (pass_ == Pass::backward)
      math::scatter_weights<Compute>(exec_, back.dweights.range(0, rows.count()),
                                     handed_.routes.assignments.range(rows.begin, rows.end),
                                     work_.dweights);
  }
}

/// Saves the two gradients that lie side by side, as their buffer is overwritten later.
template <class T>
void ExpertUnit<T>::Phase::take_gradients() {
  const std::int64_t width = u_.dispatch_.width;
  const View<const T**> both = dy_.matrix(u_.dispatch_.rows, 2 * width);
  math::copy_rows<T, T>(exec_, both.column_range(0, width), work_.dmade);
  math::copy_rows<T, T>(exec_, both.column_range(width, 2 * width), work_.dbeside);
}

template <class T>
void ExpertUnit<T>::Phase::finish() {
  const std::int64_t rows = u_.dispatch_.rows, width = u_.dispatch_.width;
  if (pass_ == Pass::forward) {
    if (u_.passed_ > 0)
      math::copy<T>(exec_, buffers_.input.range(0, u_.passed_),
                    buffers_.output.range(0, u_.passed_));
    const View<const T**> x = y_.matrix(rows, width);
    const View<T**> y = from_y(buffers_.output).matrix(rows, u_.dispatch_.columns_behind());
    if (u_.dispatch_.is_apart) math::copy_rows<T, T>(exec_, x, y.column_range(width, 2 * width));
    return math::combine_outputs<T>(exec_, u_.dispatch_.is_apart ? View<const T**>() : x,
                                    handed_.shared, handed_.routes, work_.returned,
                                    y.column_range(0, width));
  }
  // The gradient of y is that of x, and of shared, as it is, unless these are apart.
  const auto back = u_.dispatch_.template gradients_in<T>(behind_y(dy_));
  if (work_.dbeside) math::copy_rows<T, T>(exec_, work_.dbeside, dy_.matrix(rows, width));
  if (back.shared) math::copy_rows<T, T>(exec_, work_.dmade, back.shared);
  math::sum_copies<T>(exec_, handed_.routes.slots, work_.returned, back.normed);
  math::copy<Compute>(exec_, View<const Compute*>(work_.dweights), back.dweights);
  if (buffers_.parameter_gradients) sum_ranks();
}

// ---- rows of other ranks ------------------------------------------------------------------------

template <class T>
void ExpertUnit<T>::Phase::compute(std::int64_t round) {
  any_rows(round);
  for (std::int64_t from = 0; from < u_.ranks_; ++from) {
    const Arrived arrived{from,
                          round,
                          runs(from, buffers_.expert_rank),
                          rows_of(from, buffers_.expert_rank, round),
                          part_of<Sent>(to_read(buffers_.recv_buffer), from),
                          part_of<Returned>(buffers_.send_buffer, from)};
    pass_ == Pass::forward ? multiply(arrived) : multiply_back(arrived);
  }
}

/// work.up and work.activated, of the rows that have arrived.
template <class T>
void ExpertUnit<T>::Phase::activate(const Arrived& arrived) {
  const std::int64_t count = arrived.rows.count();
  if (count == 0) return;
  multiply_rows(arrived, u_.up_, arrived.sent.x, work_.up);
  math::activation_forward<T>(exec_, u_.activation_, work_.up.row_range(0, count),
                              work_.activated.row_range(0, count));
}

template <class T>
void ExpertUnit<T>::Phase::multiply(const Arrived& arrived) {
  activate(arrived);
  multiply_rows(arrived, u_.down_, work_.activated, arrived.back.rows);
}

/// Gradients of rows that have arrived, and what they add to those of parameters. No output of an
/// expert is needed, see graph::Operations::combine.
template <class T>
void ExpertUnit<T>::Phase::multiply_back(const Arrived& arrived) {
  const Sent& sent = arrived.sent;
  activate(arrived);
  for_each_expert(arrived, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    const View<const T**> dy = sent.dy.row_range(begin, end);
    const View<T**> dactivated = work_.dactivated.row_range(begin, end);
    math::gemm_by_row<T>(exec_, Transpose::no, dy, weight(u_.down_, e), dactivated, work_.padding);
    math::weigh_rows<T>(exec_, sent.weights.range(begin, end),
                        work_.activated.row_range(begin, end), array(u_.down_.bias, e), dactivated,
                        dy, work_.weighted.row_range(begin, end),
                        arrived.back.dweights.range(begin, end));
  });
  const View<T**> dup = math::is_gated(u_.activation_) ? work_.up : work_.dactivated;
  if (const std::int64_t count = arrived.rows.count(); count > 0)
    math::activation_backward<T>(exec_, u_.activation_, work_.up.row_range(0, count),
                                 work_.dactivated.row_range(0, count), dup.row_range(0, count));
  if (buffers_.parameter_gradients) add_gradients(arrived, dup);
  for_each_expert(arrived, [&](std::int64_t e, std::int64_t begin, std::int64_t end) {
    math::gemm_by_row<T>(exec_, Transpose::no, dup.row_range(begin, end), weight(u_.up_, e),
                         arrived.back.rows.row_range(begin, end), work_.padding);
  });
}

// ---- gradients of parameters --------------------------------------------------------------------

/// Adds the gradients of the runs to which the rows that have arrived belong. A run that ends there
/// is added to those of the leaves before.
template <class T>
void ExpertUnit<T>::Phase::add_gradients(const Arrived& arrived, View<const T**> dup) {
  const std::int64_t leaves = u_.dispatch_.leaves, waiting = math::tree_slots(leaves) - 1;
  for (std::int64_t e = 0; e < u_.own_; ++e) {
    const auto slot = [&](std::int64_t index) {
      if (index == 0) return gradients_of(arrived.from, e);
      const std::int64_t first = (arrived.from * waiting + index - 1) * u_.trained_elements_;
      return work_.leaves.range(first, first + u_.trained_elements_);
    };
    bool ends_here = false;  // the run of the last leaf
    math::sum_pieces(
        leaves,
        [&](std::int64_t to, std::int64_t leaf) {
          const std::int64_t run = e * leaves + leaf;
          ends_here = add_run(arrived, arrived.runs[run], arrived.runs[run + 1], dup, slot(to));
        },
        [&](std::int64_t from, std::int64_t to) {
          if (ends_here) add_up(slot(from), slot(to));
        });
  }
}

/// What rows that have arrived, of the run [first, last), add to its sums. Returns whether the run
/// ends there. Runs without rows count, too: their sums are zeros.
template <class T>
bool ExpertUnit<T>::Phase::add_run(const Arrived& arrived, std::int64_t first, std::int64_t last,
                                   View<const T**> dup, View<Compute*> sums) {
  const RoundRows rows = arrived.rows;
  std::int64_t begin = std::max(first, rows.begin), end = std::min(last, rows.end);
  if (first == last) {
    const bool is_last = arrived.round + 1 == u_.description_.capacity.most_rounds &&
                         first == arrived.runs[arrived.runs.size() - 1];
    if (!is_last && (first < rows.begin || first >= rows.end)) return false;
    begin = end = rows.begin;
  } else if (begin >= end) {
    return false;
  }
  const Compute beta = first == last || begin == first ? Compute(0) : Compute(1);
  const auto add = [&](const Layer& layer, View<const T**> inputs, View<const T**> doutputs) {
    const auto dy = doutputs.row_range(begin - rows.begin, end - rows.begin);
    if (layer.weight.trained)
      math::gemm_of_run<T>(exec_, dy, inputs.row_range(begin - rows.begin, end - rows.begin), beta,
                           gradient_in(sums, layer.weight).matrix(layer.outputs, layer.inputs));
    // A run is never cut where there are biases.
    if (layer.bias.trained) math::column_sums<T>(exec_, dy, gradient_in(sums, layer.bias));
  };
  add(u_.up_, arrived.sent.x, dup);
  add(u_.down_, work_.activated, work_.weighted);
  return first == last || end == last;
}

/// The gradients of the rows of all ranks, by a tree over them, which are a power of two.
template <class T>
void ExpertUnit<T>::Phase::sum_ranks() {
  for (std::int64_t stride = 1; stride < u_.ranks_; stride *= 2)
    for (std::int64_t rank = 0; rank < u_.ranks_; rank += 2 * stride)
      for (std::int64_t e = 0; e < u_.own_; ++e)
        add_up(gradients_of(rank + stride, e), gradients_of(rank, e));
}

#define OSTRAKON_INSTANTIATE(T)                                                                 \
  template void ExpertUnit<T>::forward(const Exec&, const UnitBuffers<T>&) const;               \
  template void ExpertUnit<T>::backward(const Exec&, const UnitBuffers<T>&, compute_t<T>, bool) \
      const;
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
