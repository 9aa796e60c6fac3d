// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/model/chain.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

/// What the output of a unit is a function of: its input, or a parameter of it or of the unit that
/// it is tied to.
template <class T>
struct UnitVariable {
  std::string name;                 ///< "input", or the parameter's
  std::vector<std::size_t> places;  ///< of its elements in the arrays
  View<T*> values;
  View<const T*> gradients;  ///< written by backward; null where it is frozen
};

/// One unit of a chain, on one rank, with arrays of its own in device memory. They are not a number
/// where nothing has been written. T: float or double.
template <class T>
class UnitRun {
 public:
  using Values = std::function<double(const Parameter&, std::int64_t element)>;

  /// `batch`: host memory, the chain's leaf. `values`: of parameters. Throws Error where the chain
  /// is for several ranks.
  UnitRun(const Chain<T>& chain, int unit, const void* batch, const std::vector<T>& input,
          const Values& values);

  const std::vector<UnitVariable<T>>& variables() const { return variables_; }

  /// Returns the output, or losses.
  std::vector<T> forward(KernelWatch* watch = nullptr);
  /// After a forward, from dL/d output; of losses from the sum of them * loss_scale.
  void backward(const std::vector<T>& output_gradient, T loss_scale, KernelWatch* watch = nullptr);

 private:
  View<std::byte*> allocate(std::int64_t bytes);
  void add_parameters(int unit, bool is_tied, const Values& values);
  template <class Compute>
  void run(const plan::Phases& phases, UnitBuffers<T> buffers, const Compute& compute);

  const Chain<T>& chain_;
  int unit_;
  const plan::UnitDescription& planned_;
  std::vector<Kokkos::View<unsigned char*, Memory>> memory_;
  UnitBuffers<T> buffers_;  ///< but for the output
  View<T*> output_;
  std::vector<UnitVariable<T>> variables_;
};

/// Copies an array to host memory, and back into the beginning of one.
template <class T>
std::vector<T> to_host(View<const T*> array) {
  std::vector<T> values(static_cast<std::size_t>(array.size()));
  if (array) Kokkos::deep_copy(host_view(values).kokkos(), array.kokkos());
  return values;
}
template <class T>
void to_device(const std::vector<T>& values, View<T*> array) {
  if (!values.empty())
    Kokkos::deep_copy(array.range(0, static_cast<std::int64_t>(values.size())).kokkos(),
                      host_view(values).kokkos());
}

}  // namespace ostrakon::model
