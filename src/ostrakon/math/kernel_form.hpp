// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/names.hpp>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// The form that kernels have, by what they run on. It decides how much workspace they take, so
/// whoever plans says for which: plans for GPUs are made on any machine.
enum class KernelForm {
  host,
  device,         ///< of a GPU: more at a time, as it has more to keep busy
  device_on_chip  ///< the same with attention on chip (attention_on_chip.hpp): NVIDIA from sm_80 on
};

/// By what they run on.
constexpr Named<KernelForm> kernel_form_names[] = {
    {KernelForm::host, "cpu"}, {KernelForm::device_on_chip, "nvidia"}, {KernelForm::device, "gpu"}};

/// The form of this build, which is the only one that it can run.
constexpr KernelForm kernel_form = !on_device         ? KernelForm::host
                                   : has_matrix_tiles ? KernelForm::device_on_chip
                                                      : KernelForm::device;

constexpr bool is_of_device(KernelForm form) { return form != KernelForm::host; }

}  // namespace ostrakon::math
