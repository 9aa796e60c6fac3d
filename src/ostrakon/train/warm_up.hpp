// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/runtime/program.hpp>
#include <ostrakon/train/step_handlers.hpp>

namespace ostrakon::train {

/// Launches once each kernel and each product of matrices that the programs of training, evaluation
/// and export launch on the device, in their shapes, so that none is loaded while ranks wait for
/// each other (math::WarmUp says why). It calls the handlers of a run, on arrays of zeros: those of
/// one action of several that are alike, without messages, data, and what the host's stream does.
///
/// Overwrites the device's arena: before the state has values. Not collective; of `parts` the
/// context is not used. Does nothing without a device.
void warm_up_programs(const StepHandlers::Parts& parts, runtime::Arenas arenas);

}  // namespace ostrakon::train
