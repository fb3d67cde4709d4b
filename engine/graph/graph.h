/* The front door of engine/graph/: networks as symbols, and executors that run them.
 *
 *   build or load a symbol -> infer shapes -> bind to tensors -> { forward, backward }*
 *
 * symbol.h is what a network is, executor.h what runs it. */
#ifndef PENSTOCK_ENGINE_GRAPH_GRAPH_H
#define PENSTOCK_ENGINE_GRAPH_GRAPH_H

#include "engine/graph/executor.h"
#include "engine/graph/symbol.h"

#endif
