// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/checkpoint/file_layout.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model.hpp>
#include <ostrakon/optim/parameter_rules.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/saving/checkpoints.hpp>
#include <ostrakon/trainer/program.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <ostrakon/trainer/trainer.hpp>

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
//       checkpoints.finish_after([&] {                 // also where a step fails
//         while (step < settings.steps) {
//           trainer.step(samples, ++step);
//           checkpoints.advance();                     // writes while steps are taken
//           if (step % 100 == 0) checkpoints.save();
//         }
//       });
//       return 0;
//     }
//     int main(int argc, char** argv) {                // starts and ends MPI and Kokkos
//       return ostrakon::run_program("my_model", "usage: my_model\n", argc, argv, run);
//     }
//
// The public interface is what the headers in this folder declare or name here, and no other
// header.

namespace ostrakon {

// This namespace already has Error and CollectiveError, Fact and Facts, DType, bf16, fp16.

// A program: MPI and Kokkos, command line, messages and exit status.
using train::Arguments;
using train::run_program;
using train::set_matrix_threads;

// Ranks, and collectives over them: mesh.world().
using comm::Communicator;
using mesh::Mesh;
using mesh::node_group;  // third argument of Mesh: a shard group is a node
using mesh::world_group;

// Samples.
using data::SampleSource;

// Settings of training: TrainerSettings and its parts.
using optim::LearningRateSchedule;
using optim::LossScaleSettings;
using optim::OptimizerKind;
using optim::OptimizerSettings;
using optim::ParameterRule;
using optim::Tail;
using plan::Accumulation;
using plan::ActivationCheckpointing;
using plan::GatherLimit;
using plan::Hierarchical;
using plan::LeafOrder;
using plan::Moments;
using plan::Offload;
using plan::OptimizerGroup;
using plan::PolicyChoices;
using plan::Prefetch;
using plan::Reshard;
using plan::Sharding;
using plan::UnitRule;
using runtime::Streams;
using train::StabilitySettings;
using train::TrainerSettings;

// Training, and the results of a step.
using checkpoint::Files;
using train::CheckpointOptions;
using train::Checkpoints;
using train::StepResult;
using train::Trainer;

}  // namespace ostrakon
