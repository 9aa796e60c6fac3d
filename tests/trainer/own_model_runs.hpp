// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <cstdint>
#include <ostrakon/training.hpp>
#include <utility>
#include <vector>

#include "model/small_chain.hpp"

namespace ostrakon::tests {

inline TrainerSettings plain_settings() {
  TrainerSettings settings;
  settings.steps = 8;
  settings.global_batch_size = 8 * small_rows;
  settings.micro_batch_size = small_rows;
  settings.optimizer.learning_rate = 1e-2;
  return settings;
}

struct Trained {
  std::vector<double> losses;
  std::uint64_t digest = 0;
};

inline Trained train_steps(Trainer& trainer, std::int64_t first, std::int64_t last,
                           SampleSource&& samples = SmallSamples()) {
  Trained trained;
  for (std::int64_t step = first; step <= last; ++step)
    trained.losses.push_back(trainer.step(samples, step).loss);
  trained.digest = trainer.state_digest();
  return trained;
}

/// A trainer of the small chain on all ranks of `comm`, with its first weights.
template <class T = float>
struct ChainRun {
  explicit ChainRun(const TrainerSettings& settings = plain_settings(),
                    MPI_Comm comm = MPI_COMM_WORLD)
      : mesh(comm), trainer(make_model(small_chain<T>()), settings, mesh) {
    trainer.allocate();
    trainer.initialize();
  }
  Mesh mesh;
  Trainer trainer;
};

inline Trained train_chain(const TrainerSettings& settings, Chain<float> chain, MPI_Comm comm,
                           SampleSource&& samples = SmallSamples()) {
  Mesh mesh(comm);
  Trainer trainer(make_model(std::move(chain)), settings, mesh);
  trainer.allocate();
  trainer.initialize();
  return train_steps(trainer, 1, settings.steps, std::move(samples));
}

/// What one rank gets, with the simplest settings; known to all ranks.
inline const Trained& reference() {
  static const Trained trained = train_chain(plain_settings(), small_chain<float>(), MPI_COMM_SELF);
  return trained;
}
/// That of the chain with a tied table.
inline const Trained& tied_reference() {
  static const Trained trained =
      train_chain(plain_settings(), tied_chain<float>(), MPI_COMM_SELF, SmallTokens());
  return trained;
}

}  // namespace ostrakon::tests
