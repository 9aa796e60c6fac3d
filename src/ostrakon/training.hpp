// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model.hpp>
#include <ostrakon/train/checkpoints.hpp>
#include <ostrakon/train/program.hpp>
#include <ostrakon/train/threads.hpp>
#include <ostrakon/train/trainer.hpp>

// Trains a model of your own, sharded over MPI ranks: see docs/own-models.md.
//
//     int run(const ostrakon::Arguments&) {
//       ostrakon::Mesh mesh(MPI_COMM_WORLD);           // ranks; nodes are those that share memory
//       ostrakon::set_matrix_threads(mesh.world());    // the same number on all ranks
//       ostrakon::TrainerSettings settings;            // batch sizes, optimizer, sharding, ...
//       ostrakon::Trainer trainer(ostrakon::make_model(std::move(chain)), settings, mesh);
//       trainer.require_memory();                      // nothing is allocated before
//       trainer.allocate();                            // nothing is allocated afterwards
//       ostrakon::CheckpointOptions options;           // options.folder = "checkpoints"; ...
//       ostrakon::Checkpoints checkpoints(options, mesh, trainer, samples);
//       std::int64_t step = checkpoints.resume();
//       if (step == 0) trainer.initialize();
//       while (step < settings.steps) {
//         trainer.step(samples, ++step);
//         if (step % 100 == 0) checkpoints.save();
//       }
//       return 0;
//     }
//     int main(int argc, char** argv) {                // starts and ends MPI and Kokkos
//       return ostrakon::run_program("my_model", "usage: my_model\n", argc, argv, run);
//     }
//
// Public is what the headers in this folder declare or name here, and no other header.

namespace ostrakon {

// A program: MPI and Kokkos, command line, messages and exit status.
using train::Arguments;
using train::run_program;
using train::set_matrix_threads;

// Ranks, and collectives over them: mesh.world().
using comm::Communicator;
using mesh::Mesh;

// Samples.
using data::SampleSource;

// How it is trained: TrainerSettings, with the settings that it is made of.
using optim::LearningRateSchedule;
using optim::OptimizerKind;
using optim::OptimizerSettings;
using optim::Tail;
using plan::Offload;
using plan::Policy;
using plan::Sharding;
using train::TrainerSettings;

// Training, and what a step returns.
using train::CheckpointOptions;
using train::Checkpoints;
using train::StepResult;
using train::Trainer;

}  // namespace ostrakon
