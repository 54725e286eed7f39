process DUALLGD_MERGE {
    tag "${meta.id}"
    label 'process_single'

    conda "${projectDir}/modules/local/duallgd/environment.yml"
    container params.container

    input:
    tuple val(meta), path(journals)

    output:
    tuple val(meta), path("${meta.id}.csv"), emit: structures
    path "versions.yml"                    , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    """
    duallgd merge ${journals} ${args} -o ${meta.id}.csv --quiet

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        duallgd: \$(duallgd version)
    END_VERSIONS
    """
}
