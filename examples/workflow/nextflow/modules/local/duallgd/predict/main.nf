process DUALLGD_PREDICT {
    tag "${meta.id} ${shard}/${shards}"
    label 'process_low'

    conda "${projectDir}/modules/local/duallgd/environment.yml"
    container params.container

    input:
    tuple val(meta), path(spectra), val(shard)
    val shards

    output:
    tuple val(meta), path("*.journal.jsonl"), emit: journal
    path "versions.yml"                     , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    """
    duallgd predict ${spectra} ${args} --threads ${task.cpus} --quiet \\
        --shard ${shard}/${shards} -o ${meta.id}.csv

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        duallgd: \$(duallgd version)
    END_VERSIONS
    """
}
