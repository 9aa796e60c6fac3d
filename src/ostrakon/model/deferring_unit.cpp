// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/deferring_unit.hpp>

#include <stdexcept>
#include <utility>

namespace ostrakon::model {

template <class T>
DeferringUnit<T>::DeferringUnit(std::unique_ptr<const Unit<T>> deferring,
                                std::unique_ptr<const Unit<T>> at_once)
    : deferring_(std::move(deferring)),
      at_once_(std::move(at_once)),
      description_(deferring_->description()) {
  const plan::UnitDescription& other = at_once_->description();
  if (other.deferred_phases > 0 || other.saved_bytes != description_.saved_bytes ||
      other.output_bytes != description_.output_bytes ||
      other.parameter_elements != description_.parameter_elements ||
      other.frozen_elements != description_.frozen_elements)
    throw std::logic_error("unit " + description_.name +
                           " is another one where it computes gradients of parameters at once");
  description_.backward_at_once = other.backward;
}

template <class T>
void DeferringUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers,
                               RowRange rows) const {
  deferring_->forward(exec, buffers, rows);
}

template <class T>
void DeferringUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                                compute_t<T> loss_scale, bool gradients_opened) const {
  const Unit<T>& unit = buffers.deferred ? *deferring_ : *at_once_;
  unit.backward(exec, buffers, loss_scale, gradients_opened);
}

template class DeferringUnit<float>;
template class DeferringUnit<double>;
template class DeferringUnit<bf16>;
template class DeferringUnit<fp16>;

}  // namespace ostrakon::model
