// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/model/model.hpp>

namespace ostrakon::model {

/// A Decoder<T> whose T is chosen at run time. Throws Error where Decoder does.
std::unique_ptr<Model> make_decoder(DType dtype, const DecoderSettings& settings, LeafShape leaf,
                                    Recompute recompute = {}, const Frozen& frozen = {});

}  // namespace ostrakon::model
