// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/parameter_source.hpp>

namespace ostrakon::checkpoint {

std::vector<model::Parameter> parameters_of(const model::DecoderSettings& settings,
                                            std::int64_t positions) {
  const model::Decoder<float> decoder(settings, {1, positions});
  std::vector<model::Parameter> parameters;
  for (int u = 0; u < decoder.units(); ++u) {
    const std::vector<model::Parameter>& more = decoder.unit(u).parameters();
    parameters.insert(parameters.end(), more.begin(), more.end());
  }
  return parameters;
}

}  // namespace ostrakon::checkpoint
