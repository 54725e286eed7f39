#!/usr/bin/env nextflow
// Structures for a large file of spectra: shards predicted in parallel, joined, shown.
//   nextflow run examples/workflow/nextflow --spectra big.mgf --shards 64 -profile slurm

include { DUALLGD_PREDICT } from './modules/local/duallgd/predict/main'
include { DUALLGD_MERGE   } from './modules/local/duallgd/merge/main'

workflow {
    spectra = Channel.fromPath(params.spectra, checkIfExists: true)
        .map { file -> [[id: file.baseName], file] }
    shards  = Channel.of(1..params.shards)

    DUALLGD_PREDICT(spectra.combine(shards), params.shards)
    DUALLGD_MERGE(DUALLGD_PREDICT.out.journal.groupTuple(size: params.shards))
}
