// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <ostrakon/base/dtype.hpp>

namespace ostrakon::comm {

/// How MPI adds up arrays of a dtype, in an order of its own.
struct MpiSum {
  MPI_Datatype type;
  MPI_Op op;
};

/// MPI's own sum of floats; of 16-bit floats, which MPI does not know, one that adds two of them in
/// float and rounds.
MpiSum mpi_sum(DType dtype);

/// For arrays of a type that is made of elements of `dtype`, as blocks are.
MPI_Op mpi_sum_of_blocks(DType dtype);

}  // namespace ostrakon::comm
