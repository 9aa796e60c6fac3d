// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <string>

namespace ostrakon::train {

/// Makes ranks agree on who computes attention, after all of them have warmed up: a library
/// (math/attention/attention_library.hpp) what no rank's trial has refused, if all ranks have the
/// same one; else own kernels, on all ranks. Collective. Throws CollectiveError where
/// runtime.attention names the library and own kernels would have to compute some of it.
void agree_on_attention(comm::Communicator& world);

/// Returns who computes attention and why: "cuDNN 9.19.0 (forward, heads of 64)"; empty where no
/// library may compute any of it.
std::string attention_text();

}  // namespace ostrakon::train
