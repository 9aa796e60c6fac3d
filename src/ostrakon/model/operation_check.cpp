// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/operation_check.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <ostrakon/model/own_kernels.hpp>
#include <type_traits>
#include <utility>

namespace ostrakon::model {
namespace {

/// visit(name, view) of each array of a call but for the batch; those that it may only read are of
/// const elements.
template <class T, class Visit>
void visit_read(OperationCall<T>& call, const Visit& visit) {
  for (std::size_t i = 0; i < call.inputs.size(); ++i)
    visit(text("inputs[", i, "]"), call.inputs[i]);
  for (std::size_t i = 0; i < call.parameters.size(); ++i)
    visit(text("parameters[", i, "]"), call.parameters[i]);
}
template <class T, class Visit>
void visit_arrays(OperationForward<T>& call, const Visit& visit) {
  visit_read(call, visit);
  visit("output", call.output);
  visit("losses", call.losses);
}
template <class T, class Visit>
void visit_arrays(OperationBackward<T>& call, const Visit& visit) {
  visit_read(call, visit);
  visit("output", call.output);
  visit("gradient", call.gradient);
  for (std::size_t i = 0; i < call.input_gradients.size(); ++i)
    visit(text("input_gradients[", i, "]"), call.input_gradients[i]);
  for (std::size_t i = 0; i < call.parameter_gradients.size(); ++i)
    visit(text("parameter_gradients[", i, "]"), call.parameter_gradients[i]);
}

/// What has the rows and columns of a call.
template <class T>
View<const T**> matrix_of(const OperationForward<T>& call) {
  return call.output ? View<const T**>(call.output) : call.losses.matrix(call.losses.size(), 1);
}
template <class T>
View<const T**> matrix_of(const OperationBackward<T>& call) {
  return call.gradient ? call.gradient : View<const T**>(call.input_gradients.at(0));
}

/// Has a call of an operation by element, which has `all` columns, take these of them.
template <class Call>
void take_columns(Call& call, std::int64_t begin, std::int64_t end, std::int64_t all) {
  visit_arrays(call, [&](const std::string&, auto& view) {
    using Array = std::decay_t<decltype(view)>;
    if constexpr (std::is_same<Array, View<typename Array::Element**>>::value)
      view = view.column_range(begin, end);
    else
      view = view.range(begin * (view.size() / all), end * (view.size() / all));
  });
  call.first_column += begin;
}

/// An array, as a matrix of one row, or a matrix: to be copied, whoever may write it.
template <class A>
auto as_matrix(const View<A*>& array) {
  using T = std::remove_const_t<A>;
  return View<T**>(const_cast<T*>(array.data()), array ? 1 : 0, array.size());
}
template <class A>
auto as_matrix(const View<A**>& matrix) {
  using T = std::remove_const_t<A>;
  return View<T**>(const_cast<T*>(matrix.data()), matrix ? matrix.rows() : 0, matrix.columns(),
                   matrix.stride());
}

template <class T>
void copy(const Exec& exec, View<T**> from, View<T**> to) {
  for_each(
      exec, from.rows(), from.columns(),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t j) { to(i, j) = from(i, j); });
}

/// A copy of an array of a call, in memory with guards around it and between its rows.
template <class T>
class GuardedCopy {
 public:
  /// `room`: elements of guards behind it, so that what is written to an array that the call does
  /// not have is found, too.
  GuardedCopy(const Exec& exec, std::string name, View<T**> original, bool is_read_only,
              std::int64_t room)
      : name_(std::move(name)),
        original_(original),
        is_read_only_(is_read_only),
        before_(static_cast<std::size_t>(guard + elements(original) + room),
                std::numeric_limits<T>::quiet_NaN()),
        memory_("guarded copy", before_.size()) {
    Kokkos::deep_copy(memory_, host_view(before_).kokkos());
    copy(exec, original_, matrix());
    exec.fence();
    Kokkos::deep_copy(host_view(before_).kokkos(), memory_);
    if (is_read_only_) return;
    std::vector<T> none = before_;
    for (std::size_t i = 0; i < none.size(); ++i)
      if (is_inside(i)) none[i] = unset();
    Kokkos::deep_copy(memory_, host_view(none).kokkos());
  }

  /// Returns the elements of a copy, with the guards behind rows.
  static std::int64_t elements(const View<T**>& of) { return of.rows() * (of.columns() + guard); }

  /// Sets the array to what the call takes.
  template <class A>
  void set(View<A*>& array) const {
    array = {matrix().data(), original_.columns()};
  }
  template <class A>
  void set(View<A**>& matrix) const {
    matrix = this->matrix();
  }

  const std::string& name() const { return name_; }
  void hand_back(const Exec& exec) const {
    if (!is_read_only_) copy(exec, matrix(), original_);
  }

  /// What a kernel has written that it may not, or not written; empty: nothing. With `rounding`, a
  /// part of the largest element, also what differs more than that from the original.
  std::string fault(std::optional<double> rounding) const {
    std::vector<T> after(before_.size());
    Kokkos::deep_copy(host_view(after).kokkos(), memory_);
    double largest = 0.0;
    for (std::size_t i = 0; i < after.size(); ++i)
      if (is_inside(i)) largest = std::max(largest, std::abs(static_cast<double>(before_[i])));
    for (std::size_t i = 0; i < after.size(); ++i) {
      const bool is_inside = this->is_inside(i);
      if (!is_inside || is_read_only_) {
        if (is_same(after[i], before_[i])) continue;
        return text(is_inside ? "wrote to its " : "wrote outside of its ", name_,
                    original_.rows() == 0 ? ", which is empty" : "");
      }
      if (is_same(after[i], unset()))
        return text("left its ", name_, "[", element(i), "] unwritten");
      if (!rounding || is_same(after[i], before_[i])) continue;
      const double error = static_cast<double>(after[i]) - static_cast<double>(before_[i]);
      if (!(std::abs(error) <= *rounding * largest))
        return text("left ", after[i], " in ", name_, "[", element(i), "], which was ", before_[i],
                    " where all of it was computed first");
    }
    return "";
  }

 private:
  static constexpr std::int64_t guard = 64;  ///< elements: arrays stay aligned

  /// Another NaN than guards are, which mostly remains where something is added to it.
  static T unset() {
    T value;
    std::memset(&value, 0xff, sizeof value);
    return value;
  }
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits are compared, those of NaN, too.
  static bool is_same(const T& a, const T& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

  std::int64_t stride() const { return original_.columns() + guard; }
  View<T**> matrix() const {
    return {memory_.data() + guard, original_.rows(), original_.columns(), stride()};
  }
  /// Whether an element of the memory is one of the array, and which.
  bool is_inside(std::size_t place) const {
    const std::int64_t from = static_cast<std::int64_t>(place) - guard;
    return from >= 0 && from / stride() < original_.rows() && from % stride() < original_.columns();
  }
  std::int64_t element(std::size_t place) const {
    const std::int64_t from = static_cast<std::int64_t>(place) - guard;
    return from / stride() * original_.columns() + from % stride();
  }

  std::string name_;
  View<T**> original_;
  bool is_read_only_;
  std::vector<T> before_;  ///< the memory with the original
  Kokkos::View<T*, Memory> memory_;
};

}  // namespace

/// Computes a call, or a part of one, in copies of its arrays.
template <class T>
template <class Call, class Kernel>
void OperationCheck<T>::compute(const Kernel& kernel, Call call, const std::string& name,
                                const Comparison& comparison) {
  std::int64_t room = 0;
  visit_arrays(call, [&](const std::string&, auto& view) {
    room = std::max(room, GuardedCopy<T>::elements(as_matrix(view)));
  });
  std::vector<GuardedCopy<T>> copies;
  visit_arrays(call, [&](const std::string& array, auto& view) {
    constexpr bool is_read_only =
        std::is_const<typename std::decay_t<decltype(view)>::Element>::value;
    copies.emplace_back(call.exec, array, as_matrix(view), is_read_only, room);
    copies.back().set(view);
  });
  kernel(call);
  call.exec.fence();
  for (const GuardedCopy<T>& one : copies) {
    const bool is_sum = one.name().rfind("parameter_gradients", 0) == 0;
    const std::string fault = one.fault(is_sum && !comparison.has_all_rows ? std::optional<double>()
                                                                           : comparison.rounding);
    if (fault_.empty() && !fault.empty()) fault_ = text(name, " ", fault);
    if (!comparison.rounding) one.hand_back(call.exec);
  }
  call.exec.fence();
}

template <class T>
template <class Call, class Kernel>
void OperationCheck<T>::check(const Operation<T>& operation, const Kernel& kernel, const Call& call,
                              const char* name) {
  // Libraries' matrix products round by the shape of what they are given: in double, and on a
  // device.
  constexpr double rounding = std::is_same<T, double>::value ? 1e-12 : on_device ? 1e-5 : 0.0;
  if (fault_.empty()) operation_ = operation.name;
  compute(kernel, call, name, {});
  compute(kernel, call, text(name, ", called twice alike,"), {0.0});
  const auto in_two = [&](std::int64_t all, const char* what, const auto& take) {
    for (const auto& [begin, end] :
         {std::pair(std::int64_t{0}, all / 2), std::pair(all / 2, all)}) {
      if (begin == end || !fault_.empty()) continue;
      Call part = call;
      take(part, begin, end);
      compute(kernel, part, text(name, " of ", what, " ", begin, " to ", end - 1),
              {rounding, what != std::string("rows")});
    }
  };
  const View<const T**> matrix = matrix_of(call);
  in_two(matrix.rows(), "rows",
         [](Call& part, std::int64_t begin, std::int64_t end) { take_rows(part, begin, end); });
  if (operation.takes == Takes::elements)
    in_two(matrix.columns(), "columns", [&](Call& part, std::int64_t begin, std::int64_t end) {
      take_columns(part, begin, end, matrix.columns());
    });
}

template class OperationCheck<float>;
template class OperationCheck<double>;

}  // namespace ostrakon::model
